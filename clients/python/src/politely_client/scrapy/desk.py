"""The coordinator session of a crawl: acquires permits for all hosts with queued requests, many
hosts per call.

Each group of queued requests has a few standing wishes. A group is an origin, or a key that a
request's meta names. A wish keeps its id, and therefore its place in the queue, from poll to poll
until it is granted. A new group does not wait for the poll under way: it gets a poll of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
import time
from collections import Counter
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request, signals

from politely_client.aio import AsyncClient, AsyncPermit
from politely_client.bodies import Grant, Wish
from politely_client.errors import BadCall, PolitelyError, Refused
from politely_client.flow import ID_USED
from politely_client.state import PermitState

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

log = logging.getLogger("politely_client")

POLL = 2.0
"""Seconds for which a poll is held open.

This is also the longest time until a group that found no room is included.
"""
POLLS_MAX = 8
WISHES_PER_POLL_MAX = 256
PERMITS_PER_POLL = 1
"""A call is held open until it has this many permits. With more, the first would become old."""
WISHES_PER_GROUP_MAX = 4
"""More wishes would delay other workers. Fewer would cost a fast host a round trip per permit."""
NEWS_COLLECTED = 0.002
"""Seconds in which new wishes are collected before a poll."""
ROOM_LOOKED_FOR = 0.02
"""Seconds between checks for room, since the end of a request sends no event."""
ASK_AGAIN = 5.0
"""Seconds until a wish that was refused for now is repeated."""

KEY = "politely_key"

_desks: WeakKeyDictionary[Crawler, Desk] = WeakKeyDictionary()


def group_of(request: Request) -> str:
    """Returns the group of a request. All requests of a group need the same permit."""
    key = request.meta.get(KEY)
    if key is not None:
        return str(key)
    return origin_of(request.url)


def origin_of(url: str) -> str:
    """Returns the URL's scheme, host and port, as a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"


Ticket: TypeAlias = "AsyncPermit | Refused | BadCall"
"""What a request takes from the queue: its permit, or the error instead of one."""


class Desk:
    """The coordinator session of one crawler, from `Desk.of`."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self.coordinator = AsyncClient(
            settings.get("POLITELY_COORDINATOR") or None,
            client=settings.get("POLITELY_CLIENT"),
            token=settings.get("POLITELY_TOKEN"),
        )
        self.patience = settings.getfloat("POLITELY_PATIENCE", 3600.0)
        self._slots_max = settings.getint("CONCURRENT_REQUESTS") or 1000
        self._group_max = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") or self._slots_max
        self._queued: Counter[str] = Counter()
        self._wishes: dict[str, list[Wish]] = {}
        self._paused: dict[str, float] = {}
        """The groups that were refused for now, and until when."""
        self._ready: list[tuple[float, int, Ticket, str]] = []
        """A heap of the time when the request may leave, a number that breaks ties, the permit, and
        the group.
        """
        self._delays: dict[str, float] = {}
        """The Crawl-delay of each origin, in seconds."""
        self._handed: dict[Request, Ticket] = {}
        """The permits whose requests are on their way through the engine to the middleware."""
        self._count = 0
        self._news = asyncio.Event()
        self._polls: set[asyncio.Task[None]] = set()
        self._given_back: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()
        """The ids of the wishes in the polls under way."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        crawler.signals.connect(self._close, signals.spider_closed)

    @classmethod
    def of(cls, crawler: Crawler) -> Desk:
        """Returns the crawler's session, and opens it if there is none."""
        if crawler not in _desks:
            _desks[crawler] = cls(crawler)
        return _desks[crawler]

    # Calls by the queue

    def queued(self, group: str, more: int = 1) -> None:
        """Adds ``more`` to the number of the group's requests that wait in a queue."""
        self._queued[group] += more
        if self._queued[group] <= 0:
            del self._queued[group]
        if more > 0:
            self._news.set()
            if self._task is None:
                self._task = asyncio.ensure_future(self._run())

    def take(self, groups: Container[str]) -> tuple[str, Ticket] | None:
        """Takes a permit that may be used now, for a request of one of the groups."""
        now = time.monotonic()
        others = []
        taken = None
        while self._ready and self._ready[0][0] <= now:
            entry = heapq.heappop(self._ready)
            _, _, permit, group = entry
            if isinstance(permit, AsyncPermit) and not permit.state.may_start(now):
                self._give_back(permit)  # the engine was busy for too long
            elif group in groups:
                taken = (group, permit)
                break
            elif group in self._queued:
                others.append(entry)  # the other queue may use it (disk or memory)
            elif isinstance(permit, AsyncPermit):
                self._give_back(permit)
        for entry in others:
            heapq.heappush(self._ready, entry)
        self._nudge_when_ready()
        return taken

    def hand(self, request: Request, permit: Ticket) -> None:
        """Attaches a permit to its request."""
        self._handed[request] = permit

    def claim(self, request: Request) -> AsyncPermit | None:
        """Returns the request's permit. Raises its `Refused` or `BadCall` instead."""
        permit = self._handed.pop(request, None)
        self._news.set()
        if isinstance(permit, PolitelyError):
            raise permit
        if permit and not permit.state.may_start(time.monotonic()):
            self._give_back(permit)
            return None
        return permit

    def crawl_delay(self, url: str, seconds: float) -> None:
        """Stores the Crawl-delay of robots.txt, which then is part of each wish.

        Permits from before it was known are given back.
        """
        group = origin_of(url)
        if self._delays.get(group) == seconds:
            return
        self._delays[group] = seconds
        self._wishes.pop(group, None)
        kept = [entry for entry in self._ready if entry[3] != group]
        too_early = [entry[2] for entry in self._ready if entry[3] == group]
        self._ready = kept
        heapq.heapify(self._ready)
        for request in [request for request in self._handed if group_of(request) == group]:
            too_early.append(self._handed.pop(request))
        for permit in too_early:
            if isinstance(permit, AsyncPermit):
                self._give_back(permit)
        self._news.set()

    def delay_of(self, url: str) -> float | None:
        """Returns the Crawl-delay of the URL's origin, in seconds."""
        return self._delays.get(origin_of(url))

    def wake(self, after: float) -> None:
        """Makes the engine check its queue after ``after`` seconds."""
        asyncio.get_running_loop().call_later(after, self._nudge)

    # Polling

    async def _run(self) -> None:
        while True:
            self._news.clear()
            self._sweep()
            wishes = self._standing() if self._room() > 0 and len(self._polls) < POLLS_MAX else []
            if wishes:
                poll = asyncio.ensure_future(self._poll(wishes))
                self._polls.add(poll)
                poll.add_done_callback(self._polls.discard)
                await asyncio.sleep(NEWS_COLLECTED)
            else:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(
                        self._news.wait(), ROOM_LOOKED_FOR if self._queued else POLL
                    )

    async def _poll(self, wishes: list[Wish]) -> None:
        ids = {wish.id for wish in wishes}
        self._asked |= ids
        try:
            answers, pause = await self.coordinator.poll(wishes, PERMITS_PER_POLL, POLL)
            for wish, answer in answers:
                self._answered(wish, answer)
            if not answers:  # held open for POLL, unless the coordinator has no room
                await asyncio.sleep(min(pause, ROOM_LOOKED_FOR))
        except PolitelyError as error:
            log.error("politely: %s", error)
            await asyncio.sleep(ASK_AGAIN)
        finally:
            self._asked -= ids
            self._news.set()

    def _standing(self) -> list[Wish]:
        """Returns a few wishes per group that no poll contains now, for random groups if there are
        too many.
        """
        now = time.monotonic()
        ready = Counter(group for *_, group in self._ready)
        under_way = Counter(map(group_of, self._crawler.engine.downloader.active))
        wanted: list[Wish] = []
        groups = list(self._queued)
        random.shuffle(groups)
        for group in groups:
            if len(wanted) >= WISHES_PER_POLL_MAX:
                break
            if self._paused.get(group, 0.0) > now:
                continue
            self._paused.pop(group, None)
            n = min(
                WISHES_PER_GROUP_MAX,
                self._queued[group] - ready[group],
                self._group_max - ready[group] - under_way[group],
            )
            standing = self._wishes.setdefault(group, [])
            while len(standing) < n:
                standing.append(replace(Wish.of(group), crawl_delay=self._delays.get(group)))
            wanted += [wish for wish in standing[: max(n, 0)] if wish.id not in self._asked]
        for group in self._wishes.keys() - self._queued.keys():
            del self._wishes[group]
        return wanted[:WISHES_PER_POLL_MAX]

    def _answered(self, wish: Wish, answer: Grant | Refused | BadCall) -> None:
        group = wish.target
        standing = self._wishes.get(group, [])
        if wish in standing:
            standing.remove(wish)
        if isinstance(answer, Grant):
            permit = AsyncPermit(self.coordinator, PermitState(answer))
            if wish.crawl_delay == self._delays.get(group):
                self._add(permit.state.start, permit, group)
            else:  # robots.txt was read while the poll was open
                self._give_back(permit)
        elif isinstance(answer, BadCall) or (answer.retry_in or 0.0) > self.patience:
            self._add(time.monotonic(), answer, group)
        elif answer.code != ID_USED:
            log.info("%s: %s", group, answer)
            pause = answer.retry_in or ASK_AGAIN
            self._paused[group] = time.monotonic() + pause * random.uniform(1.0, 1.2)

    def _add(self, start: float, permit: Ticket, group: str) -> None:
        self._count += 1
        heapq.heappush(self._ready, (start, self._count, permit, group))
        self._nudge_when_ready()

    def _room(self) -> int:
        """Returns how many more requests the engine accepts."""
        engine = self._crawler.engine
        if engine is None or engine.scraper.slot is None or engine.scraper.slot.needs_backout():
            return 0
        return (
            self._slots_max
            - len(engine.downloader.active)
            - len(self._ready)
            - len(self._polls) * PERMITS_PER_POLL
        )

    def _sweep(self) -> None:
        """Gives back permits of requests that another middleware answered or dropped."""
        now = time.monotonic()
        for request, permit in list(self._handed.items()):
            if isinstance(permit, AsyncPermit) and now > permit.state.valid_until:
                del self._handed[request]
                self._give_back(permit)

    def _give_back(self, permit: AsyncPermit) -> None:
        task = asyncio.ensure_future(permit.cancel())
        self._given_back.add(task)  # the event loop holds no strong reference to a task
        task.add_done_callback(self._given_back.discard)

    # The engine

    def _nudge_when_ready(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ready:
            pause = max(0.0, self._ready[0][0] - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, self._nudge)

    def _nudge(self) -> None:
        """Makes the engine ask its scheduler now.

        By itself it asks when a request ends, and every 5 s. There is no public method to make it
        ask sooner.
        """
        slot: Any = getattr(self._crawler.engine, "_slot", None)
        if slot is not None:
            slot.nextcall.schedule()

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        polls = list(self._polls)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, *self._given_back, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        kept = [permit for _, _, permit, _ in self._ready] + list(self._handed.values())
        await self.coordinator.cancel(each for each in kept if isinstance(each, AsyncPermit))
        await self.coordinator.aclose()
        _desks.pop(self._crawler, None)
