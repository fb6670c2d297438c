"""How often a request was sent, and whether it is sent again: the coordinator says, this counts."""

from __future__ import annotations

from typing import Any

from politely.bodies import Next


class Attempts:
    """The attempts at one request."""

    def __init__(self, method: str = "GET", number: int = 1, refused: int = 0) -> None:
        self.method = method
        self.number = number
        """How many times it is sent, the one under way included."""
        self.refused = refused
        """How many of the times before were refused."""
        self._next: Next | None = None

    def fields(self) -> dict[str, Any]:
        """What an `Outcome` says of it."""
        return {"method": self.method, "attempt": self.number, "refused": self.refused}

    def heard(self, next: Next) -> None:
        """The coordinator's word on the attempt under way."""
        self._next = next

    def pause(self) -> float | None:
        """Seconds until the next attempt, which is counted from now on; ``None``: there is none."""
        next, self._next = self._next, None
        if next is None or not next.retry:
            return None
        self.number += 1
        self.refused += next.refused
        return next.after
