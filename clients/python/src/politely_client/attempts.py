"""Counts how often a request was sent, and keeps the coordinator's decision on the next attempt."""

from __future__ import annotations

from typing import Any

from politely_client.bodies import Next


class Attempts:
    """The attempts at one request."""

    def __init__(self, method: str = "GET", number: int = 1, free: int = 0) -> None:
        self.method = method
        self.number = number
        """The number of attempts, the one under way included."""
        self.free = free
        """The number of earlier attempts that did not count: the host refused them, or was down."""
        self._next: Next | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of an `Outcome` that describe the attempts."""
        return {"method": self.method, "attempt": self.number, "free": self.free}

    def heard(self, next: Next) -> None:
        """Records the coordinator's decision on the attempt under way."""
        self._next = next

    def pause(self) -> float | None:
        """Returns the seconds until the next attempt and counts it. ``None`` ends the request."""
        next, self._next = self._next, None
        if next is None or not next.retry:
            return None
        self.number += 1
        self.free += next.free
        return next.after
