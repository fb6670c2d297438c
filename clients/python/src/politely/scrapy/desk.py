"""The crawl's desk at the coordinator: permits for whatever hosts have requests queued, many hosts to a call.

A few wishes stand for every group of requests that is queued; a group is an origin, or a key named in a request's meta. A
wish keeps its id, and with it its place in line, from poll to poll until it is granted. New groups do not wait for the poll that is
under way: they get one of their own.
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

from politely.aio import AsyncCoordinator, AsyncPermit
from politely.bodies import Grant, Wish
from politely.errors import BadCall, PolitelyError, Refused
from politely.flow import ID_USED
from politely.shell import DEFAULT_URL
from politely.state import PermitState

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

log = logging.getLogger("politely")

POLL = 2.0
"""Seconds a poll is held open: as long as it may take until a group that was left out is asked for."""
POLLS_MAX = 8
WISHES_PER_POLL_MAX = 256
PERMITS_PER_POLL = 1
"""A call is held open until it has as many as it wants; the first would grow old meanwhile."""
WISHES_PER_GROUP_MAX = 4
"""More would keep other workers waiting; fewer would cost a fast host a round trip per permit."""
NEWS_COLLECTED = 0.002
"""Seconds in which wishes are collected before they are asked for."""
ROOM_LOOKED_FOR = 0.02
"""Seconds between looks for room: a request that ends makes it without saying so."""
ASK_AGAIN = 5.0
"""Seconds until a wish is repeated that was refused for now."""

KEY = "politely_key"

_desks: WeakKeyDictionary[Crawler, Desk] = WeakKeyDictionary()


def group_of(request: Request) -> str:
    """Requests of a group need the same permit."""
    key = request.meta.get(KEY)
    if key is not None:
        return str(key)
    return origin_of(request.url)


def origin_of(url: str) -> str:
    """The URL's scheme, host and port, as a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"


Ticket: TypeAlias = "AsyncPermit | Refused | BadCall"
"""With which a request leaves the queue: its permit, or why there will be none."""


class Desk:
    """One per crawler: `Desk.of`."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self.coordinator = AsyncCoordinator(
            settings.get("POLITELY_COORDINATOR") or DEFAULT_URL,
            client=settings.get("POLITELY_CLIENT"),
            token=settings.get("POLITELY_TOKEN"),
        )
        self.patience = settings.getfloat("POLITELY_PATIENCE", 3600.0)
        self._slots_max = settings.getint("CONCURRENT_REQUESTS") or 1000
        self._group_max = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") or self._slots_max
        self._queued: Counter[str] = Counter()
        self._wishes: dict[str, list[Wish]] = {}
        self._paused: dict[str, float] = {}
        """Groups that were refused for now, and until when."""
        self._ready: list[tuple[float, int, Ticket, str]] = []
        """A heap: when the request may leave, a number that breaks ties, its permit, its group."""
        self._delays: dict[str, float] = {}
        """Of each origin, the seconds its robots.txt asks for between two requests."""
        self._handed: dict[Request, Ticket] = {}
        """Permits whose requests are on their way through the engine to the middleware."""
        self._count = 0
        self._news = asyncio.Event()
        self._polls: set[asyncio.Task[None]] = set()
        self._given_back: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()
        """The ids of wishes that a poll is asking for."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        crawler.signals.connect(self._close, signals.spider_closed)

    @classmethod
    def of(cls, crawler: Crawler) -> Desk:
        """The crawler's desk, opened if there is none."""
        if crawler not in _desks:
            _desks[crawler] = cls(crawler)
        return _desks[crawler]

    # What the queue says and asks

    def queued(self, group: str, more: int = 1) -> None:
        """So many more requests of the group wait in a queue."""
        self._queued[group] += more
        if self._queued[group] <= 0:
            del self._queued[group]
        if more > 0:
            self._news.set()
            if self._task is None:
                self._task = asyncio.ensure_future(self._run())

    def take(self, groups: Container[str]) -> tuple[str, Ticket] | None:
        """A permit that may be used now, for a request of one of the groups."""
        now = time.monotonic()
        others = []
        taken = None
        while self._ready and self._ready[0][0] <= now:
            entry = heapq.heappop(self._ready)
            _, _, permit, group = entry
            if isinstance(permit, AsyncPermit) and not permit.state.may_start(now):
                self._give_back(permit)  # the engine was busy for too long, or nothing is queued any more
            elif group in groups:
                taken = (group, permit)
                break
            elif group in self._queued:
                others.append(entry)  # of the queue on disk, or of the one in memory
            elif isinstance(permit, AsyncPermit):
                self._give_back(permit)
        for entry in others:
            heapq.heappush(self._ready, entry)
        self._nudge_when_ready()
        return taken

    def hand(self, request: Request, permit: Ticket) -> None:
        """The request takes its permit along."""
        self._handed[request] = permit

    def claim(self, request: Request) -> AsyncPermit | None:
        """The permit that the request brought. Raises what it brought instead: `Refused`, `BadCall`."""
        permit = self._handed.pop(request, None)
        self._news.set()
        if isinstance(permit, PolitelyError):
            raise permit
        if permit and not permit.state.may_start(time.monotonic()):
            self._give_back(permit)
            return None
        return permit

    def crawl_delay(self, url: str, seconds: float) -> None:
        """What robots.txt asks for: the coordinator is told with each wish. Permits from before it was known go back."""
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
        """The seconds that the URL's origin asks for."""
        return self._delays.get(origin_of(url))

    def wake(self, after: float) -> None:
        """Lets the engine look into its queue then."""
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
            if not answers:  # held for POLL, unless the coordinator has no room for those who wait
                await asyncio.sleep(min(pause, ROOM_LOOKED_FOR))
        except PolitelyError as error:
            log.error("politely: %s", error)
            await asyncio.sleep(ASK_AGAIN)
        finally:
            self._asked -= ids
            self._news.set()

    def _standing(self) -> list[Wish]:
        """A few wishes per group that nobody asks for now; random groups where not all find room."""
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
            self._add(permit.state.start, permit, group)
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
        """How many more requests the engine would take."""
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
        self._given_back.add(task)  # the loop itself keeps no task alive
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
        """The engine asks its scheduler when a request ends, and every 5 s; there is no public way to say sooner."""
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
