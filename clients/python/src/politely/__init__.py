"""Asks a politely coordinator (`politely serve`) before each request, and reports the outcome.

>>> from politely import Coordinator
>>> coordinator = Coordinator("http://127.0.0.1:7077")
>>> with coordinator.permit(url) as permit:                                      # doctest: +SKIP
...     permit.report(httpx.get(url, timeout=permit.lease_left))

`Coordinator` blocks, and `AsyncCoordinator` is awaited. The transports of `politely.httpx`, the
adapter of `politely.requests` and the add-on of `politely.scrapy` need no further code. Times are
in seconds.
"""

from politely.aio import AsyncCoordinator, AsyncPermit
from politely.attempts import Attempts
from politely.bodies import ErrorKind, Next, Outcome, Wish
from politely.coordinator import Coordinator, Permit
from politely.errors import Away, BadCall, LeaseLost, PolitelyError, Refused, TimedOut, TooLate
from politely.frontier import Frontier, NewPage, Page, PutAnswer, Unit

__all__ = [
    "AsyncCoordinator",
    "AsyncPermit",
    "Attempts",
    "Away",
    "BadCall",
    "Coordinator",
    "ErrorKind",
    "Frontier",
    "LeaseLost",
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
