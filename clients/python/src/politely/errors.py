"""What can go wrong between asking and sending."""

from __future__ import annotations

from typing import Any


class PolitelyError(Exception):
    """Any of the errors below."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled the usual way it would call the constructor with the message, which is not what that takes.
        return _bare, (type(self), *self.args), self.__dict__


def _bare(kind: type[PolitelyError], *args: Any) -> PolitelyError:
    return kind.__new__(kind, *args)


class Refused(PolitelyError):
    """No permit will be granted: the key is parked, the line is full, or there is no room for another key."""

    def __init__(self, code: str, reason: str, retry_in: float | None = None) -> None:
        super().__init__(reason if retry_in is None else f"{reason}; ask again in {retry_in:g} s")
        self.code = code
        """``parked``, ``full``, ``line_full``, ``id_used`` or ``closing``."""
        self.reason = reason
        self.retry_in = retry_in
        """Seconds until the answer may be another, if the coordinator knows."""


class TimedOut(PolitelyError):
    """No permit within the caller's time."""

    def __init__(self, reason: str, retry_in: float = 0.0, position: int = 0) -> None:
        super().__init__(f"no permit in time: {reason}")
        self.reason = reason
        """What is in the way: ``pace``, ``in flight``, ``hold, Retry-After``, ``engine away``, …"""
        self.retry_in = retry_in
        """Seconds until it is worth asking again."""
        self.position = position
        """How many were before it in the key's line."""


class Away(TimedOut):
    """The coordinator did not answer within the caller's time. Nothing may be sent: no permit was given."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the coordinator is away: {why}")


class TooLate(PolitelyError):
    """The permit was not used while it was valid; it was given back. Ask for another."""


class LeaseLost(PolitelyError):
    """The permit's lease is over, so its slot belongs to somebody else: the request must be aborted."""


class BadCall(PolitelyError):
    """The coordinator does not take the call, or can never be called so: a wrong field, a wrong token, a certificate that is
    not trusted. Asking again does not help."""

    def __init__(self, detail: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(detail if field is None else f"{field}: {detail}")
        self.detail = detail
        self.field = field
        self.status = status
        """Of the answer; 0: the call did not reach the coordinator."""
