"""What a permit is worth at a time: when its request may start, until when, and how long its slot is ours."""

from __future__ import annotations

from politely.bodies import Grant


class PermitState:
    """One departure of a grant. Times are those of one monotonic clock, in seconds."""

    def __init__(self, grant: Grant, slot: int = 0) -> None:
        self.grant = grant
        self.slot = slot
        """Which of the grant's departures."""
        self.start = grant.start + slot * grant.interval
        """The request may leave from now on …"""
        self.valid_until = self.start + grant.valid_for
        """… and must have left by now."""
        self.lease_until = self.start + grant.lease
        """The slot returns by itself: what takes longer is renewed, or aborted."""
        self.lost = False
        """The coordinator said that the lease is gone."""
        self.over = False
        """Reported or cancelled."""

    @property
    def name(self) -> str:
        """The coordinator's name for the permit."""
        return self.grant.permit

    @property
    def key(self) -> str:
        """The key whose limits it keeps."""
        return self.grant.key

    @property
    def target(self) -> str:
        """The URL or key that was asked for."""
        return self.grant.wish.target

    def may_start(self, now: float) -> bool:
        return self.start <= now <= self.valid_until

    def is_lost(self, now: float) -> bool:
        return self.lost or now >= self.lease_until

    def lease_left(self, now: float) -> float:
        """Seconds until the request must be over."""
        return 0.0 if self.lost else max(0.0, self.lease_until - now)

    def wants_renewal(self, now: float) -> bool:
        """Half of the lease is over: late enough to be rare, early enough to be answered."""
        return self.lease_until - now <= self.grant.lease / 2
