"""A worker without a coordinator: it waits, stops, or goes on with its share.

The share is that of the last answer: a place among the live workers, and the limit of each key at
its last grant. Of N workers each has every N-th turn of a key, and turn k is at k / rate on the
coordinator's clock. So together the workers keep the rate, although none knows of the others.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from politely_client.bodies import Grant, Json, Outcome, Wish, fresh_id
from politely_client.state import PermitState

OnUnavailable: TypeAlias = Literal["wait", "share", "stop"]
"""What to do while no coordinator answers."""

BEGINS_AFTER = 3.0
"""Seconds from the first call without an answer to the first turn, set by the coordinator."""
LATE_MAX = 0.02
"""Seconds. An older turn is lost."""
LEASE = 3600.0
"""Seconds. Only this process knows the lease of a permit on a share."""
LATER_MAX = 65_536
"""Maximum number of reports that are kept for later. Beyond it the oldest is dropped."""
REFUSALS = frozenset({403, 429, 503})
"""Statuses that end the share of their key."""


@dataclass
class _Limit:
    rate: float
    in_flight: int
    told: float
    not_before: float = -math.inf


@dataclass(frozen=True)
class _Place:
    index: int
    of: int
    ahead: float
    """Seconds by which the coordinator's clock is ahead of this one."""
    until: float
    lasts: float


@dataclass
class Share:
    """The share of one client. Times are seconds of one monotonic clock."""

    on_unavailable: OnUnavailable = "wait"
    coordinators: int = 1
    """The number of coordinators that are called, one after the other."""
    later: list[Json] = field(default_factory=list)
    """Reports that wait for a coordinator."""
    _away: float | None = None
    _place: _Place | None = None
    _limits: dict[str, _Limit] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _held: dict[str, weakref.WeakSet[PermitState]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_away(self) -> bool:
        """Whether the last call had no answer."""
        return self._away is not None

    def is_on(self, now: float) -> bool:
        """Whether the worker has a share and no coordinator answers."""
        return self._away is not None and self._place is not None and now < self._place.until

    def asked(self) -> Json:
        """Returns the fields that a call adds."""
        if self.on_unavailable != "share":
            return {}
        place = self._place
        return {"share": {"workers": place.of, "place": place.index} if place else {}}

    def tell(self, share: Mapping[str, Any] | None, sent: float, now: float) -> None:
        """Notes the share in the answer to a call that was sent at ``sent``."""
        if not share:
            self._place = None
            return
        ahead, lasts = share["clock_us"] / 1e6 - now, share["lasts_ms"] / 1000
        self._place = _Place(share["place"], share["workers"], ahead, sent + lasts, lasts)

    def granted(self, wish: Wish, grant: Grant, limit: Mapping[str, Any] | None, now: float) -> None:
        """Notes the limit of a grant's key. Without one, its requests have further limits."""
        if self.on_unavailable != "share" or wish.also:
            return
        self._keys[_origin(wish)] = grant.key
        if limit and limit["rate"] > 0:
            self._limits[grant.key] = _Limit(limit["rate"], limit["in_flight"], now)
        else:
            self._limits.pop(grant.key, None)

    def hold(self, permit: PermitState) -> PermitState:
        """Counts a permit until it is over."""
        if self.on_unavailable == "share":
            self._held.setdefault(permit.key, weakref.WeakSet()).add(permit)
        return permit

    def heard(self, key: str, answer: Mapping[str, Any], now: float) -> None:
        """Notes the rate and the hold in the answer to a report."""
        if limit := self._limits.get(key):
            limit.rate = answer.get("rate") or limit.rate
            limit.not_before = max(limit.not_before, now + answer.get("hold_ms", 0) / 1000)

    def away(self, now: float) -> None:
        """Notes a call without an answer."""
        if self._away is None:
            self._away = now

    def back(self) -> None:
        """Notes an answer."""
        self._away = None

    def keep(self, permit: PermitState, item: Json, outcome: Outcome | None) -> None:
        """Keeps a report for later. A refusal ends the share of its key."""
        self.later.append(item)
        del self.later[:-LATER_MAX]
        if outcome is not None and outcome.status in REFUSALS:
            self._limits.pop(permit.key, None)

    def take_turn(self, wishes: list[Wish], within: float, now: float) -> tuple[int, float] | None:
        """Takes the first turn of one of ``wishes`` within so many seconds.

        Returns the index of the wish and the time of the turn.
        """
        with self._lock:
            turns = [(self._turn(wish, now), i) for i, wish in enumerate(wishes)]
            turn, i = min(turns, default=(math.inf, 0))
            if turn > now + within:
                return None
            self._limits[self._keys[_origin(wishes[i])]].not_before = turn + 1e-6
            return i, max(turn, now)

    def grant(self, wish: Wish, start: float) -> Grant:
        """Returns the permit of a turn."""
        sent = {name: value for name, value in wish.body().items() if name != "id"}
        key = self._keys[_origin(wish)]
        return Grant(wish, f"share-{fresh_id()}", key, start, 0.5, LEASE, 1, 0.0, sent=sent)

    def _turn(self, wish: Wish, now: float) -> float:
        """Returns the next turn of a wish, or infinity if it must wait for a coordinator."""
        place, limit = self._place, self._limits.get(self._keys.get(_origin(wish), ""))
        plain = isinstance(wish.cost, int) and not (wish.bytes or wish.also or wish.crawl_delay)
        if not self.is_on(now) or not (place and limit and plain) or wish.slots != 1:
            return math.inf
        assert self._away is not None and isinstance(wish.cost, int)
        held = self._held.get(self._keys[_origin(wish)], ())
        slots = limit.in_flight // place.of + (place.index < limit.in_flight % place.of)
        if sum(not permit.over for permit in held) >= slots:
            return math.inf
        first = max(self._away + BEGINS_AFTER, limit.not_before, now - LATE_MAX) + place.ahead
        cycle, phase = place.of / limit.rate, place.index / limit.rate
        turn = math.ceil((first - phase) / cycle) * cycle + phase - place.ahead
        turn += cycle * (wish.cost - 1)
        return turn if turn < min(place.until, limit.told + place.lasts) else math.inf


def _origin(wish: Wish) -> str:
    """Returns what determines the key of a wish."""
    parts = urlsplit(wish.url or "")
    return wish.key or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()
