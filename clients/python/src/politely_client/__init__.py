"""Acquires a permit from a politely coordinator before each request, and reports the outcome.

>>> import httpx
>>> from politely_client import Client
>>> with Client() as client, client.permit(url) as permit:
...     next = permit.report(httpx.get(url, timeout=permit.lease_left))
>>> next.what
'done'

The coordinator is the ``politely serve`` that ``POLITELY_COORDINATOR`` names, or the user's own on
this machine, which is started if it does not run. `Client` blocks, and `AsyncClient` is awaited. The transports of `politely_client.httpx`, the middleware of
`politely_client.aiohttp`, the adapter of `politely_client.requests` and the add-on of
`politely_client.scrapy` need no further code. Times are in seconds.
"""

from importlib import metadata

from politely_client.aio import AsyncClient, AsyncPermit
from politely_client.attempts import Attempts
from politely_client.bodies import ErrorKind, Next, Outcome, Wish
from politely_client.coordinator import Client, Permit
from politely_client.errors import (
    Unavailable,
    BadCall,
    LeaseLost,
    LockLost,
    PolitelyError,
    Refused,
    TimedOut,
    TooLate,
)
from politely_client.frontier import Frontier, NewPage, Page, PutAnswer, Unit
from politely_client.locks import AsyncLock, Lock

try:
    __version__ = metadata.version("politely-client")
except metadata.PackageNotFoundError:  # the sources are used without an installation
    __version__ = "0+unknown"

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "AsyncPermit",
    "Attempts",
    "Unavailable",
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
    "__version__",
]
