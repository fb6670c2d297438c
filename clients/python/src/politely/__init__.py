"""Acquires a permit from a politely coordinator before each request, and reports the outcome.

>>> import httpx
>>> from politely import Client
>>> with Client() as client, client.permit(url) as permit:
...     next = permit.report(httpx.get(url, timeout=permit.lease_left))
>>> next.what
'done'

The coordinator is the ``politely serve`` that ``POLITELY_COORDINATOR`` names. `Client` blocks, and
`AsyncClient` is awaited. The transports
of `politely.httpx`, the middleware of `politely.aiohttp`, the adapter of `politely.requests` and
the add-on of `politely.scrapy` need no further code. Times are in seconds.
"""

from politely.aio import AsyncClient, AsyncPermit
from politely.attempts import Attempts
from politely.bodies import ErrorKind, Next, Outcome, Wish
from politely.coordinator import Client, Permit
from politely.errors import (
    Away,
    BadCall,
    LeaseLost,
    LockLost,
    PolitelyError,
    Refused,
    TimedOut,
    TooLate,
)
from politely.frontier import Frontier, NewPage, Page, PutAnswer, Unit
from politely.locks import AsyncLock, Lock

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "AsyncPermit",
    "Attempts",
    "Away",
    "BadCall",
    "Client",
    "ErrorKind",
    "Frontier",
    "LeaseLost",
    "Lock",
    "LockLost",
    "NewPage",
    "Next",
    "Outcome",
    "Page",
    "Permit",
    "PolitelyError",
    "PutAnswer",
    "Refused",
    "TimedOut",
    "TooLate",
    "Unit",
    "Wish",
]
