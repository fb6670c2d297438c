"""The frontier of a coordinator: a crawl that several workers share.

>>> frontier = Frontier(AsyncClient(), "news")
>>> await frontier.put(["https://example.com/"])                                 # doctest: +SKIP
>>> async for unit in frontier.units(pages=10):                                  # doctest: +SKIP
...     async for page in unit:
...         response = await http.get(page.url)
...         page.report(response, found=links_of(response))

A unit of work is a domain with some of its pages, owned by this worker for the length of a lease.
Iterating over a unit yields each page when it may be requested. The next step of `Frontier.units`
sends the outcomes, returns the other pages, and takes the next unit, in one call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from politely_client.aio import AsyncClient
from politely_client.bodies import Grant, Json, Outcome, Wish, in_ms
from politely_client.errors import BadCall, PolitelyError
from politely_client.flow import POLL_MAX
from politely_client.outcome import outcome_of
from politely_client.parts import halves, in_parts
from politely_client.state import PermitState

log = logging.getLogger("politely_client")

PUT_MAX = 5_000
"""The most pages in one call of `Frontier.put`."""
FINISHED_EVERY = 2.0
"""Seconds between two looks whether a crawl is finished, while it has no unit for this worker."""
UNKNOWN_CRAWL = 404
_UNREADABLE = frozenset({400, 413, 422})
"""Statuses of a call whose body the coordinator does not accept."""

PutResult: TypeAlias = Literal["new", "known", "full", "invalid", "failed"]
Then: TypeAlias = Literal["advice", "finish", "return"]


@dataclass(frozen=True)
class NewPage:
    """A page that is added to a crawl."""

    url: str
    key: str | None = None
    """The domain, as a key. Default: the key that follows from the URL."""
    priority: int = 5
    """0 is last, 9 is first."""
    due: float | None = None
    """The date before which the page is not handed out, in seconds since 1970."""
    metadata: Any = None
    """Any JSON, at most 16 KiB. It comes back with the page."""

    @classmethod
    def of(cls, page: str | NewPage) -> NewPage:
        return cls(page) if isinstance(page, str) else page

    def body(self) -> Json:
        body: Json = {"url": self.url}
        if self.key is not None:
            body["key"] = self.key
        if self.priority != 5:
            body["priority"] = self.priority
        if self.due is not None:
            body["due_unix_ms"] = in_ms(self.due)
        if self.metadata is not None:
            body["metadata"] = self.metadata
        return body


@dataclass(frozen=True)
class PutAnswer:
    """The answer to a page that was added."""

    answer: PutResult
    detail: str = ""
    """The reason of ``invalid`` and ``failed``."""


@dataclass
class Page:
    """A page of a unit of work. Report it, or it returns to the queue."""

    url: str
    priority: int
    attempt: int
    """The number of this attempt, from 1."""
    free: int
    """The number of earlier attempts that did not count."""
    metadata: Any
    permit: PermitState
    """The departure that belongs to the page."""
    _words: Json | None = field(default=None, repr=False)
    _found: list[Json] = field(default_factory=list, repr=False)

    def report(
        self,
        response: Any = None,
        *,
        outcome: Outcome | None = None,
        found: Iterable[str | NewPage] = (),
        again: float | None = None,
        then: Then = "advice",
        **told: Any,
    ) -> None:
        """Notes the outcome of the request, and pages that were found on the page.

        The arguments for the outcome are those of `AsyncPermit.report`. The coordinator decides
        whether a failed page is retried. ``again`` is the date of the next visit, in seconds since
        1970. The outcome is sent with the next step of `Frontier.units`. Links are sent in parts
        if one call has no room for them.
        """
        counted = {"attempt": self.attempt, "free": self.free, **told}
        what = outcome_of(response, outcome, counted, self.permit.grant.send_bodies)
        latency = what.latency
        if latency is None:
            latency = max(0.0, time.monotonic() - self.permit.start)
        report = what.body(self.permit.name, self.permit.slot, latency)
        self._note({"url": self.url, "report": report}, found, again, then)

    def finish(self, *, found: Iterable[str | NewPage] = (), again: float | None = None) -> None:
        """Ends the page without an outcome, for example because robots.txt forbids it."""
        self._note({"url": self.url}, found, again, "finish")

    def _note(
        self, words: Json, found: Iterable[str | NewPage], again: float | None, then: Then
    ) -> None:
        if then != "advice":
            words["then"] = then
        if again is not None:
            words["again_unix_ms"] = in_ms(again)
        self._words = words
        self._found = [NewPage.of(page).body() for page in found]


class Unit:
    """A unit of work: a domain with some of its pages. This worker owns it while its lease lasts."""

    def __init__(self, body: Mapping[str, Any], came: float) -> None:
        self.token: int = body["token"]
        """The fencing token. The coordinator refuses words under the token of a unit that ended."""
        self.domain: str = body["domain"]
        self.lease_until = came + body["lease_ms"] / 1000
        """The end of the lease, on this machine's monotonic clock."""
        grant = Grant.read(Wish(key=self.domain), body["grant"], came)
        self.pages = [
            Page(
                page["url"],
                page["priority"],
                page["attempt"],
                page.get("free", 0),
                page.get("metadata"),
                PermitState(grant, slot),
            )
            for slot, page in enumerate(body["pages"])
        ]

    async def __aiter__(self) -> AsyncIterator[Page]:
        """Yields each page when it may be requested. A page whose time has passed is left out and
        returns to the queue.
        """
        for page in self.pages:
            early = page.permit.start - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            if page.permit.may_start(time.monotonic()):
                yield page

    def words(self) -> Json:
        """Returns the element of `done` about this unit."""
        words: Json = {"token": self.token}
        words["pages"] = [page._words for page in self.pages if page._words is not None]
        words["found"] = [found for page in self.pages for found in page._found]
        return words


class Frontier:
    """One crawl of a coordinator's frontier."""

    def __init__(self, coordinator: AsyncClient, crawl: str) -> None:
        self._coordinator = coordinator
        self.crawl = crawl

    async def put(self, pages: Iterable[str | NewPage]) -> list[PutAnswer]:
        """Adds pages, and returns one answer for each. The pages are on the coordinator's disk then.

        It is safe to repeat. Raises `Unavailable` if the coordinator does not answer for 30 s.
        """
        answers: list[PutAnswer] = []
        batch: list[Json] = []
        for page in pages:
            batch.append(NewPage.of(page).body())
            if len(batch) == PUT_MAX:
                answers += await self._put(batch)
                batch = []
        return answers + (await self._put(batch) if batch else [])

    async def _put(self, pages: list[Json]) -> list[PutAnswer]:
        lines = await self._coordinator.call(f"frontier/{self.crawl}/put", {}, lines=pages)
        return [PutAnswer(line["answer"], line.get("detail", "")) for line in lines]

    async def units(
        self,
        *,
        pages: int = 1,
        lease: float = 60.0,
        idle: float | None = None,
        labels: dict[str, str] | None = None,
    ) -> AsyncIterator[Unit]:
        """Yields units of at most ``pages`` pages. The step after a unit gives it back.

        It ends when no page of the crawl waits or is under way in any worker. With ``idle`` it ends
        after so many seconds without a unit instead, and never with ``math.inf``. Run it in several
        tasks to work on several domains at once. A unit that takes longer than ``lease`` seconds is
        lost, and its pages return to the queue. ``labels`` fill the names of keys in the
        coordinator's policy.
        """
        done: list[Json] = []
        since = time.monotonic()
        unit: Unit | None = None
        try:
            while True:
                left = FINISHED_EVERY if idle is None else since + idle - time.monotonic()
                body = {
                    "pages_per_unit": pages,
                    "lease_ms": in_ms(lease),
                    "wait_ms": in_ms(min(POLL_MAX, max(0.0, left))),
                    "done": done,
                    "labels": labels or {},
                }
                asked = time.monotonic()
                try:
                    answer = await self._coordinator.call(f"frontier/{self.crawl}/exchange", body)
                except BadCall as why:
                    if not done or why.status not in _UNREADABLE:
                        raise
                    (refused,), done = done, []
                    await self._say_less(refused, why)
                    continue
                self._warn(answer["done"])
                done = []
                for each in answer["units"]:
                    unit = Unit(each, time.monotonic())
                    # The lease counts from the time of the call, as the answer may have taken long.
                    unit.lease_until = min(unit.lease_until, asked + left + lease)
                    yield unit
                    *parts, last = in_parts(unit.words())
                    for part in parts:
                        await self._say(part)
                    done, unit = [last], None
                    since = time.monotonic()
                if not answer["units"] and (
                    left <= 0 if idle is not None else await self.is_finished()
                ):
                    return
        finally:
            # The loop was left, or its body failed: outcomes that were noted are sent.
            if unit is not None:
                done = in_parts(unit.words())
            try:
                for part in done:
                    await self._say(part)
            except PolitelyError as why:
                log.warning("%s: a unit ends with its lease: %s", self.crawl, why)

    async def _say(self, words: Json) -> None:
        """Sends words about a unit. An element that the coordinator does not accept is left out."""
        try:
            self._warn(await self.done([words]))
        except BadCall as why:
            if why.status not in _UNREADABLE:
                raise
            await self._say_less(words, why)

    async def _say_less(self, words: Json, why: BadCall) -> None:
        """Sends words that were refused in halves, so that one element costs no other."""
        elements = words["found"] + words["pages"]
        if len(elements) == 1:
            log.warning("%s: %s was not accepted: %s", self.crawl, elements[0]["url"], why)
        for part in halves(words):
            await self._say(part)

    def _warn(self, answers: list[Json]) -> None:
        for each in answers:
            if error := each.get("error"):
                log.warning("%s: a unit was refused: %s", self.crawl, error["detail"])

    async def take(
        self,
        *,
        units: int = 1,
        pages: int = 1,
        lease: float = 60.0,
        wait: float = 0.0,
        labels: dict[str, str] | None = None,
    ) -> list[Unit]:
        """Takes units of work. `done` gives them back.

        ``labels`` fill the names of keys in the coordinator's policy.
        """
        body = {
            "units": units,
            "pages_per_unit": pages,
            "lease_ms": in_ms(lease),
            "wait_ms": in_ms(min(wait, POLL_MAX)),
            "labels": labels or {},
        }
        answer = await self._coordinator.call(f"frontier/{self.crawl}/take", body)
        return [Unit(each, time.monotonic()) for each in answer["units"]]

    async def done(self, words: list[Json]) -> list[Json]:
        """Sends words about units, in the form of the API, and returns the answers."""
        if not words:
            return []
        answer = await self._coordinator.call(f"frontier/{self.crawl}/done", {"units": words})
        answers: list[Json] = answer["units"]
        return answers

    async def counts(self) -> Json:
        """Returns the numbers of the crawl: ``domains pages ready dated leased finished``."""
        counts: Json = await self._coordinator.call(f"frontier/{self.crawl}", {}, method="GET")
        return counts

    async def is_finished(self) -> bool:
        """Returns whether no page of the crawl waits or is under way in any worker."""
        counts = await self.counts()
        return not (counts["ready"] or counts["dated"] or counts["leased"])
