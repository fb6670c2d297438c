"""A scheduler whose queue is a crawl of a coordinator's frontier, so that processes share it."""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.request import request_from_dict

from politely_client.aio import AsyncPermit
from politely_client.bodies import Json
from politely_client.errors import BadCall, PolitelyError
from politely_client.frontier import UNKNOWN_CRAWL, Frontier, NewPage, Page, Unit
from politely_client.scrapy.desk import Desk
from politely_client.scrapy.middleware import ATTEMPTS, NOT_SENT

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

log = logging.getLogger("politely_client")

PAGE = "politely_page"
"""Field of a request's meta: the token of its unit and the URL of its page. Retries and redirects
of a page have a copy of it.
"""
KEPT = ("method", "headers", "cookies", "meta", "encoding", "priority", "callback", "errback",
        "cb_kwargs", "flags")
"""The fields of a request that are stored with its page, if they are not the default."""
METADATA_MAX = 16 * 1024
TAKE_WAIT = 2.0
"""Seconds for which a call waits for units."""
PAUSE = 0.05
"""Seconds between two looks at what happened."""
UNITS_MAX = 16


class FrontierScheduler(Scheduler):
    """The scheduler for SCHEDULER. It needs the add-on `politely_client.scrapy.Politely`.

    Each new GET request becomes a page of the crawl, and each URL is visited once, also if several
    processes yield it or ``dont_filter`` is set. A request with a body, and a retry or a redirect,
    stays in this process and waits for its permit there.

    A page is finished when its callback has ended and its links are stored. If the process is
    killed before, another process visits the page after POLITELY_LEASE seconds.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierScheduler:
        crawl = cls.crawl_of(crawler.settings)
        scheduler = super().from_crawler(crawler)
        scheduler._begin(crawler, crawl)
        return scheduler

    @staticmethod
    def crawl_of(settings: BaseSettings) -> str:
        """Returns the name of the crawl. Raises `ValueError` for settings that cannot work."""
        if settings.get("JOBDIR"):
            raise ValueError("JOBDIR has no effect on a frontier, which is persistent; remove it")
        crawl = settings.get("POLITELY_CRAWL")
        if not crawl:
            raise ValueError("POLITELY_CRAWL must name the crawl that the processes share")
        return str(crawl)

    def _begin(self, crawler: Crawler, crawl: str) -> None:
        settings = crawler.settings
        self._desk = Desk.of(crawler)
        self._frontier = Frontier(self._desk.coordinator, crawl)
        self._pages_max = settings.getint("POLITELY_UNIT_PAGES", 10)
        self._lease = settings.getfloat("POLITELY_LEASE", 120.0)
        self._room = settings.getint("CONCURRENT_REQUESTS")
        self._new: list[NewPage] = []
        """Pages that are not stored yet."""
        self._units: dict[int, _Owned] = {}
        self._ready: list[tuple[float, int, _Owned, Page]] = []
        """A heap of the pages that may be requested, by their start."""
        self._count = 0
        self._over = False
        self._put_failed = False
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, spider: Spider) -> Any:
        opened = super().open(spider)
        self._spider = spider
        self._tasks = [
            asyncio.ensure_future(self._keep_taking()),
            asyncio.ensure_future(self._keep_storing()),
        ]
        return opened

    def close(self, reason: str) -> Any:
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._store(is_end=True)
        except PolitelyError as why:
            log.error("politely: the units of this process end with their leases: %s", why)
        super().close(reason)

    # Calls by the engine

    def enqueue_request(self, request: Request) -> bool:
        mark = request.meta.get(PAGE)
        if mark is not None:
            owned = self._units.get(mark[0])
            if owned is not None and owned.is_of_page(mark[1], request):
                owned.open[mark[1]].add(request)
                return super().enqueue_request(request)
            # A link that a callback made from its response's meta is a page of its own.
            request = request.replace(meta={k: v for k, v in request.meta.items() if k != PAGE})
        page = self._page(request)
        if page is None:
            return super().enqueue_request(request)
        self._new.append(page)
        self._over = False
        return True

    def next_request(self) -> Request | None:
        while self._ready and self._ready[0][0] <= time.monotonic():
            _, _, owned, page = heapq.heappop(self._ready)
            request = self._request(owned, page)
            if request is None:
                continue
            if page.permit.may_start(time.monotonic()):
                permit = AsyncPermit(self._desk.coordinator, page.permit)
                self._desk.hand(request, permit)
                return self._started(request)
            super().enqueue_request(request)  # the engine was busy; another permit is needed
        return self._started(super().next_request())

    def _started(self, request: Request | None) -> Request | None:
        """Notes that the engine begins with a request, and returns it."""
        mark = request.meta.get(PAGE) if request is not None else None
        owned = self._units.get(mark[0]) if mark else None
        if owned is not None and request is not None:
            owned.started.add(request)
        return request

    def has_pending_requests(self) -> bool:
        return not self._over or super().has_pending_requests()

    def __len__(self) -> int:
        return len(self._new) + len(self._ready) + super().__len__()

    # Requests and pages

    def _page(self, request: Request) -> NewPage | None:
        """Returns the page of a request, or `None` if the request cannot be stored."""
        if request.method != "GET" or request.body:
            return None
        bare = Request(request.url).to_dict()
        said = request.to_dict(spider=self._spider)
        kept = {name: said[name] for name in KEPT if said[name] != bare[name]}
        if "headers" in kept:
            kept["headers"] = {
                name.decode("latin-1"): [value.decode("latin-1") for value in values]
                for name, values in kept["headers"].items()
            }
        try:
            text = json.dumps(kept)
        except (TypeError, ValueError) as why:
            log.warning("%s: not shared with other processes: %s", request.url, why)
            return None
        if len(text) > METADATA_MAX // 2:
            log.warning("%s: not shared with other processes: its fields are too large", request.url)
            return None
        priority = 5 + max(-5, min(4, request.priority))
        return NewPage(request.url, priority=priority, metadata=kept or None)

    def _request(self, owned: _Owned, page: Page) -> Request | None:
        kept = dict(page.metadata) if isinstance(page.metadata, dict) else {}
        kept = {name: value for name, value in kept.items() if name in KEPT}
        said = {**kept, "url": page.url, "dont_filter": True}
        try:
            request = request_from_dict(said, spider=self._spider)
        except (TypeError, ValueError) as why:  # a page of another spider
            log.error("%s: no request can be made of its metadata: %s", page.url, why)
            owned.end(page.url, "finish")
            return None
        request.meta[PAGE] = (owned.unit.token, page.url)
        if page.attempt > 1:
            request.meta[ATTEMPTS] = (page.attempt, page.free)
        owned.open[page.url].add(request)
        return request

    # The frontier

    async def _keep_taking(self) -> None:
        while True:
            try:
                await self._take()
            except PolitelyError as why:
                if not (isinstance(why, BadCall) and why.status == UNKNOWN_CRAWL):
                    log.error("politely: %s", why)
                self._over = self._is_idle() and isinstance(why, BadCall)
                self._desk.wake(0.0)
                await asyncio.sleep(1.0)

    async def _take(self) -> None:
        room = self._room - len(self._ready)
        if room <= 0:
            await asyncio.sleep(PAUSE)
            return
        units = await self._frontier.take(
            units=min(room, UNITS_MAX), pages=self._pages_max, lease=self._lease, wait=TAKE_WAIT
        )
        for unit in units:
            owned = self._units[unit.token] = _Owned(unit, time.monotonic() + self._lease / 3)
            for page in unit.pages:
                self._count += 1
                heapq.heappush(self._ready, (page.permit.start, self._count, owned, page))
                self._desk.wake(max(0.0, page.permit.start - time.monotonic()))
        if units:
            self._over = False
        elif self._is_idle():
            self._over = await self._frontier.is_finished() and self._is_idle()
            self._desk.wake(0.0)

    def _is_idle(self) -> bool:
        return not (self._units or self._new or self._put_failed)

    async def _keep_storing(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await self._store()
            except PolitelyError as why:
                log.error("politely: %s", why)
                await asyncio.sleep(1.0)

    async def _store(self, is_end: bool = False) -> None:
        """Stores new pages, and then finishes pages whose requests have ended. A page is finished
        only after its links are stored.
        """
        under_way = self._under_way()
        for owned in self._units.values():
            owned.look(under_way)
        await self._put()
        now = time.monotonic()
        words: list[Json] = []
        for owned in self._units.values():
            if (said := owned.words(now, self._lease, is_end)) is not None:
                words.append(said)
        for first in range(0, len(words), 100):
            await self._done(words[first : first + 100])

    async def _put(self) -> None:
        pages, self._new = self._new, []
        if not pages:
            return
        self._put_failed = True
        try:
            answers = await self._frontier.put(pages)
        except PolitelyError:
            self._new = pages + self._new
            raise
        self._put_failed = False
        for page, answer in zip(pages, answers, strict=False):
            self._stat(f"put/{answer.answer}")
            if answer.answer in ("invalid", "full"):
                log.error("%s: not stored: %s %s", page.url, answer.answer, answer.detail)

    async def _done(self, words: list[Json]) -> None:
        answers = await self._frontier.done(words)
        for said, answer in zip(words, answers, strict=True):
            owned = self._units.get(said["token"])
            if owned is None:
                continue
            if error := answer.get("error"):
                log.warning("politely: a unit ended early: %s", error["detail"])
                self._stat("unit_lost")
            owned.sent(said)
            if "error" in answer or not answer["kept"]:
                del self._units[said["token"]]

    def _under_way(self) -> set[Request]:
        """Returns the requests whose download, callback or items have not ended. There is no public
        name for them.
        """
        engine = self.crawler.engine if self.crawler else None
        slot: Any = getattr(engine, "_slot", None)
        return set() if slot is None else set(slot.inprogress)

    def _stat(self, name: str) -> None:
        if self.stats:
            self.stats.inc_value(f"politely/{name}")


class _Owned:
    """A unit that this process owns."""

    def __init__(self, unit: Unit, renew_at: float) -> None:
        self.unit = unit
        self.renew_at = renew_at
        self.open: dict[str, set[Request]] = {page.url: set() for page in unit.pages}
        """The requests of each page that is not finished: the page itself, a retry, a redirect."""
        self.started: set[Request] = set()
        """The requests with which the engine has begun."""
        self._ended: dict[str, str] = {}
        """What becomes of the pages that ended, until it is sent."""

    def is_of_page(self, url: str, request: Request) -> bool:
        """Returns whether a request is a retry or a redirect of a page, and no link.

        A callback may copy the meta of its response into a link.
        """
        requests = self.open.get(url)
        if requests is None:
            return False
        hops = max((each.meta.get("redirect_times", 0) for each in requests), default=0)
        return request.url == url or request.meta.get("redirect_times", 0) > hops

    def end(self, url: str, then: str) -> None:
        if self.open.pop(url, None) is not None:
            self._ended[url] = then

    def look(self, under_way: set[Request]) -> None:
        """Finds the pages whose requests have ended."""
        for url, requests in list(self.open.items()):
            gone = (requests & self.started) - under_way
            self.started -= gone
            requests -= gone
            if gone and not requests:
                returns = any(request.meta.get(NOT_SENT) for request in gone)
                self.end(url, "return" if returns else "finish")

    def words(self, now: float, lease: float, is_end: bool) -> Json | None:
        """Returns what is to be said about the unit now, if anything."""
        is_kept = bool(self.open) and not is_end
        if is_kept and not self._ended and now < self.renew_at:
            return None
        words: Json = {"token": self.unit.token}
        words["pages"] = [{"url": url, "then": then} for url, then in self._ended.items()]
        if is_kept:
            words |= {"keep": True, "lease_ms": int(lease * 1000)}
            self.renew_at = now + lease / 3
        return words

    def sent(self, words: Json) -> None:
        for page in words["pages"]:
            self._ended.pop(page["url"], None)
