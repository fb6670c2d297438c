"""Errors between acquiring a permit and sending a request."""

from __future__ import annotations

from typing import Any


class PolitelyError(Exception):
    """Base class of the errors below."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default pickling calls the constructor with the message, but the constructors of
        # subclasses take other arguments.
        return _bare, (type(self), *self.args), self.__dict__


def _bare(kind: type[PolitelyError], *args: Any) -> PolitelyError:
    return kind.__new__(kind, *args)


class Refused(PolitelyError):
    """No permit will be granted: the key is parked, its queue is full, or there is no room for
    another key.
    """

    def __init__(self, code: str, reason: str, retry_in: float | None = None) -> None:
        super().__init__(reason if retry_in is None else f"{reason}; ask again in {retry_in:g} s")
        self.code = code
        """``parked``, ``full``, ``queue_full``, ``id_used`` or ``closing``."""
        self.reason = reason
        self.retry_in = retry_in
        """Seconds until the answer may change, if the coordinator knows."""


class TimedOut(PolitelyError):
    """No permit was granted within the caller's time."""

    def __init__(self, reason: str, retry_in: float = 0.0, position: int = 0) -> None:
        super().__init__(f"no permit in time: {reason}")
        self.reason = reason
        """The cause of the wait, such as ``pace``, ``in flight`` or ``hold, Retry-After``."""
        self.retry_in = retry_in
        """Seconds until a new call is useful."""
        self.position = position
        """The number of requests before this one in the key's queue."""


class Unavailable(TimedOut):
    """The coordinator did not answer within the caller's time. No permit was granted, so nothing
    may be sent.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the coordinator is unavailable: {why}")


class TooLate(PolitelyError):
    """The permit was not used while it was valid, and was given back. Acquire another."""


class LeaseLost(PolitelyError):
    """The permit's lease has ended and its slot is free for another request. The request must be
    aborted.
    """


class LockLost(PolitelyError):
    """The lock has ended, and another session may hold the key. Stop the work on it."""


class BadCall(PolitelyError):
    """The coordinator does not accept the call, or can never be called with these settings.

    Causes are a wrong field, a wrong token, or an untrusted certificate. A retry does not help.
    """

    def __init__(self, detail: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(detail if field is None else f"{field}: {detail}")
        self.detail = detail
        self.field = field
        self.status = status
        """Status of the answer, or 0 if the call did not reach the coordinator."""
