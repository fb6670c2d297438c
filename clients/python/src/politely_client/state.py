"""The validity of a permit: the start, the latest start, and the end of its lease."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from politely_client.attempts import Attempts
from politely_client.bodies import Grant, Outcome
from politely_client.outcome import outcome_of

AMOUNT_MAX = 1 << 53
"""The largest amount of a unit: every whole number up to it is exact in JSON."""
UNITS_MAX = 3
"""The most units of one request."""
_UNIT = re.compile("[a-z][a-z0-9_]{0,15}")


class PermitState:
    """One departure of a grant. Times are those of one monotonic clock, in seconds."""

    def __init__(self, grant: Grant, slot: int = 0) -> None:
        self.grant = grant
        self.slot = slot
        """The index of this departure in its grant."""
        self.start = grant.start + slot * grant.interval
        """The time from which the request may leave."""
        self.valid_until = self.start + grant.valid_for
        """The time by which the request must have left."""
        self.lease_until = self.start + grant.lease
        """The time at which the slot returns by itself. A longer request must be renewed or
        aborted.
        """
        self.lost = False
        """Whether the coordinator answered that the lease has ended."""
        self.used: dict[str, int] = {}
        """The amounts of units that the request used. They replace the estimates."""
        self.over = False
        """Whether the permit was reported or cancelled."""

    @property
    def name(self) -> str:
        """The coordinator's id for the permit."""
        return self.grant.permit

    @property
    def key(self) -> str:
        """The key whose limits the permit keeps."""
        return self.grant.key

    @property
    def target(self) -> str:
        """The URL or key for which the permit was acquired."""
        return self.grant.wish.target

    def settle(self, used: Mapping[str, int]) -> None:
        """Sets the amounts that the next report sends."""
        if self.over:
            raise ValueError("the permit was reported already; settle it before the report")
        for unit, amount in used.items():
            whole = isinstance(amount, int) and not isinstance(amount, bool)
            if not whole or not 0 <= amount <= AMOUNT_MAX:
                raise ValueError(f"{unit} must be a whole number from 0 to 2^53, not {amount!r}")
            if not _UNIT.fullmatch(unit):
                raise ValueError(f"{unit!r} is no unit; use 1 to 16 lowercase letters, digits and _")
        if len(self.used.keys() | used.keys()) > UNITS_MAX:
            raise ValueError(f"more than {UNITS_MAX} units; remove some")
        self.used.update(used)

    def may_start(self, now: float) -> bool:
        return self.start <= now <= self.valid_until

    def is_lost(self, now: float) -> bool:
        return self.lost or now >= self.lease_until

    def lease_left(self, now: float) -> float:
        """Seconds until the request must have ended."""
        return 0.0 if self.lost else max(0.0, self.lease_until - now)

    def wants_renewal(self, now: float) -> bool:
        """Whether half of the lease has passed: late enough to renew rarely, early enough for an
        answer.
        """
        return self.lease_until - now <= self.grant.lease / 2


class PermitView:
    """The part of a permit that makes no call: the same for threads and for asyncio."""

    def __init__(self, state: PermitState) -> None:
        self.state = state
        self.attempts: Attempts | None = None
        """The attempts at the permit's request, if they are counted."""

    @property
    def key(self) -> str:
        """The key whose limits the permit keeps."""
        return self.state.key

    @property
    def target(self) -> str:
        """The URL or key for which the permit was acquired."""
        return self.state.target

    @property
    def slots(self) -> int:
        """The number of departures granted. Iterate over the permit to use all of them."""
        return self.state.grant.slots

    @property
    def lost(self) -> bool:
        """Whether the lease has ended, so that the request must be aborted."""
        return self.state.is_lost(time.monotonic())

    @property
    def lease_left(self) -> float:
        """Seconds until the request must have ended: a good time-out."""
        return self.state.lease_left(time.monotonic())

    def settle(self, **used: int) -> None:
        """Sets the amounts of units that the request used, as in ``permit.settle(tokens=340)``.

        The report sends them. What was estimated too much returns, and what was estimated too
        little is owed. Without this the estimates of ``cost`` count.
        """
        self.state.settle(used)

    def _outcome(
        self, response: Any, outcome: Outcome | None, told: dict[str, Any]
    ) -> Outcome:
        """Returns the outcome that a report was called with, with the attempts so far."""
        counted = {**self.attempts.fields(), **told} if self.attempts else told
        return outcome_of(response, outcome, counted, self.state.grant.send_bodies)
