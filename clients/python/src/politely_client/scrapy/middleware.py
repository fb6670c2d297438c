"""Acquires a permit for every download, reports every outcome, and repeats requests."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from politely_client.aio import AsyncPermit
from politely_client.attempts import Attempts
from politely_client.bodies import Next
from politely_client.errors import BadCall, PolitelyError, Refused
from politely_client.outcome import BODY_START_MAX, body_matters, error_kind, evidence
from politely_client.scrapy.desk import KEY, Desk
from politely_client.scrapy.queue import NOT_BEFORE
from politely_client.targets import partial

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

log = logging.getLogger("politely_client")

ATTEMPTS = "politely_attempts"
"""Field of a request's meta: how often it was sent before, and how many of these attempts were
refused.
"""


NOT_SENT = "politely_not_sent"
"""Field of a request's meta: true if the host is parked, so that the page may be visited later."""


class PolitelyMiddleware:
    """A downloader middleware, next to the network (950).

    A request that the host refused, or that failed for now, returns to the scheduler if the
    coordinator says so. Such a retry does not count against RETRY_TIMES. If the coordinator gives
    up, Scrapy's own RetryMiddleware does not retry.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        if settings.getfloat("DOWNLOAD_DELAY") or settings.getbool("AUTOTHROTTLE_ENABLED"):
            raise ValueError(
                "politely paces requests: DOWNLOAD_DELAY and AUTOTHROTTLE_ENABLED would let permits expire"
            )
        self._crawler = crawler
        self._desk = Desk.of(crawler)
        self._under_way: WeakKeyDictionary[Request, tuple[AsyncPermit, float]] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PolitelyMiddleware:
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        try:
            permit = self._desk.claim(request) or await self._acquire(request)
        except (Refused, BadCall) as why:
            self._count("not_sent")
            request.meta[NOT_SENT] = isinstance(why, Refused)
            raise IgnoreRequest(f"politely: {why}") from why
        permit.attempts = Attempts(request.method, *request.meta.get(ATTEMPTS, (1, 0)))
        now = time.monotonic()
        # Scrapy cannot abort the download later, so it gets the time-out now.
        timeout = request.meta.get("download_timeout") or permit.lease_left
        request.meta["download_timeout"] = min(timeout, permit.lease_left)
        self._under_way[request] = (permit, now)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        permit, sent = self._under_way.pop(request, (None, 0.0))
        if permit is None:
            return response
        headers = {
            name.decode("latin-1"): b", ".join(values).decode("latin-1")
            for name, values in response.headers.items()
        }
        latency = request.meta.get("download_latency") or time.monotonic() - sent
        asked = permit.state.grant.send_bodies
        body = _body_start(response) if body_matters(response.status, asked) else None
        outcome = {
            **evidence(response.status, headers, body, asked),
            "latency": latency,
            "bytes": len(response.body),
        }
        again = await self._heard(request, permit, outcome)
        if again is not None:
            return again
        content_range = headers.get("Content-Range")
        if part := partial(response.status, content_range, "Range" in request.headers):
            self._count("partial")
            raise IgnoreRequest(f"politely: {part}")
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        permit, sent = self._under_way.pop(request, (None, 0.0))
        if permit is None:
            return None
        kind = error_kind(exception)
        if kind is None:
            await permit.cancel(sent=True)
            return None
        latency = time.monotonic() - sent
        return await self._heard(request, permit, {"error": kind, "latency": latency})

    async def _acquire(self, request: Request) -> AsyncPermit:
        """Acquires a permit for a request outside the queue: robots.txt, or a download by the
        spider itself.
        """
        again = request.meta.pop(NOT_BEFORE, None)
        if again is not None:
            await asyncio.sleep(max(0.0, again - time.monotonic()))
        key = request.meta.get(KEY)
        retry = ATTEMPTS in request.meta
        return await self._desk.coordinator.acquire(
            None if key else request.url,
            key=key,
            retry=retry,
            crawl_delay=self._desk.delay_of(request.url),
        )

    async def _heard(
        self, request: Request, permit: AsyncPermit, outcome: dict[str, Any]
    ) -> Request | None:
        """Reports the outcome. Returns the request again if it is to be repeated."""
        try:
            next = await permit.report(resource=request.url, **outcome)
        except PolitelyError as why:  # keep the page; Scrapy's own retries apply
            log.warning("%s: not reported: %s", request.url, why)
            return None
        self._count(f"next/{next.what}")
        if next.target_after:
            # Scrapy's redirect has a copy of this meta.
            request.meta[NOT_BEFORE] = time.monotonic() + next.target_after
        if next.what == "give_up":
            request.meta["dont_retry"] = True
            return None
        if not next.retry:
            return None
        self._count("refused" if next.free and not next.after else "failed")
        assert permit.attempts is not None
        return _again(request, permit.attempts, next)

    def _count(self, what: str) -> None:
        if self._crawler.stats:
            self._crawler.stats.inc_value(f"politely/{what}")


def _again(request: Request, attempts: Attempts, next: Next) -> Request:
    again = request.copy()
    again.dont_filter = True
    attempts.pause()
    again.meta[ATTEMPTS] = (attempts.number, attempts.free)
    if next.after:
        again.meta[NOT_BEFORE] = time.monotonic() + next.after
    # The time-out came from the last permit's lease. The next permit has another lease.
    again.meta.pop("download_timeout", None)
    return again


def _body_start(response: Response) -> bytes | None:
    """Returns the beginning of the body, or ``None`` if it cannot be decoded.

    At this place in the chain the body is still compressed.
    """
    encoding = (response.headers.get("Content-Encoding") or b"").strip().lower()
    start = response.body[: 4 * BODY_START_MAX]
    if start and encoding in (b"gzip", b"x-gzip", b"deflate"):
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(start, BODY_START_MAX)
        except zlib.error:
            return None
    return None if start and encoding else start

