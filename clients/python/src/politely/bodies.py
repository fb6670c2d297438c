"""What goes over the wire, as Python values: wishes, grants, outcomes and what to do next.

The API counts in milliseconds; everything here is in seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

Json: TypeAlias = "dict[str, Any]"

ErrorKind: TypeAlias = Literal[
    "no_such_host", "resolver", "connect", "tls", "timeout", "reset", "malformed"
]
"""Why no response came."""


CRAWL_DELAY_MAX = 86_400.0
"""Seconds. A longer Crawl-delay counts as a day."""


def fresh_id() -> str:
    """A name nobody used before, not even a forked process."""
    return uuid.uuid4().hex


def without_secrets(url: str) -> str:
    """The URL without user, query and fragment: keys do not need them."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def in_ms(seconds: float) -> int:
    """Whole milliseconds, rounded up: nobody asks too early."""
    return max(0, -int(-seconds * 1000 // 1))


@dataclass(frozen=True)
class Wish:
    """One permit wanted. Asked again under the same ``id``, it keeps its place in line and is charged once."""

    url: str | None = None
    """What will be requested; the coordinator derives the key. Either this or ``key``."""
    key: str | None = None
    """``example.com``, ``site/example.co.uk``, ``custom/account-7``, …"""
    also: tuple[str, ...] = ()
    """Further keys whose limits the request must keep."""
    retry: bool = False
    """The request was sent before."""
    cost: int = 1
    """Tokens, 1 to 1,000."""
    bytes: int = 0
    """Bytes it will send."""
    priority: int = 0
    """0 to 9; each step is worth ten seconds in line."""
    max_wait: float | None = None
    """Seconds from now by which the request must be able to start. Default: as long as the call waits."""
    slots: int = 1
    """Consecutive departures wanted, 1 to 1,024."""
    crawl_delay: float | None = None
    """Seconds that the host's robots.txt asks for between one request's end and the next one's start: it holds for all workers."""
    crawl_delay_fresh: float | None = None
    """Seconds until that robots.txt is read again. Default: 24 hours, which is the most."""
    id: str = field(default_factory=fresh_id)

    @classmethod
    def of(cls, target: str | Wish) -> Wish:
        """A URL if it has a scheme, otherwise a key."""
        if isinstance(target, Wish):
            return target
        return cls(url=target) if "://" in target else cls(key=target)

    @property
    def target(self) -> str:
        """The URL or key, as it was given."""
        return self.url or self.key or ""

    def again(self) -> Wish:
        """The same wish, not yet granted."""
        return replace(self, id=fresh_id())

    def body(self) -> Json:
        """As the API wants it; defaults are left out."""
        body: Json = {"id": self.id}
        if self.url is not None:
            body["url"] = without_secrets(self.url)
        if self.key is not None:
            body["key"] = self.key
        if self.also:
            body["also"] = list(self.also)
        if self.retry:
            body["kind"] = "retry"
        if self.cost != 1:
            body["cost"] = self.cost
        if self.bytes:
            body["bytes"] = self.bytes
        if self.priority:
            body["priority"] = self.priority
        if self.max_wait is not None:
            body["max_wait_ms"] = in_ms(self.max_wait)
        if self.slots != 1:
            body["slots"] = self.slots
        if self.crawl_delay:
            body["crawl_delay_ms"] = in_ms(min(self.crawl_delay, CRAWL_DELAY_MAX))
            if self.crawl_delay_fresh is not None:
                body["crawl_delay_fresh_ms"] = in_ms(self.crawl_delay_fresh)
        return body


@dataclass(frozen=True)
class Grant:
    """Leave to send. Times are those of the clock that was read when the answer came."""

    wish: Wish
    permit: str
    key: str
    start: float
    valid_for: float
    lease: float
    slots: int
    interval: float

    @classmethod
    def read(cls, wish: Wish, answer: Mapping[str, Any], came: float) -> Grant:
        return cls(
            wish=wish,
            permit=answer["permit"],
            key=answer["key"],
            start=came + answer["start_in_ms"] / 1000,
            valid_for=answer["valid_for_ms"] / 1000,
            lease=answer["lease_ms"] / 1000,
            slots=answer["slots"],
            interval=answer["interval_ms"] / 1000,
        )


@dataclass(frozen=True)
class Outcome:
    """What happened to one request: a ``status``, or an ``error`` where none came."""

    status: int | None = None
    error: ErrorKind | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body_start: str | None = None
    """The beginning of the body, where the status is one that block pages use."""
    latency: float | None = None
    """Seconds from sending to the response's head. Default: the time since the permit's start."""
    bytes: int = 0
    body_coming: bool = False
    """The body is still coming: the slot stays taken until the next report without this."""
    method: str = "GET"
    """Only a method that is safe to repeat is told to retry."""
    attempt: int = 1
    """How many times the request was sent, this time included."""
    refused: int = 0
    """How many of the times before were refused."""
    resource: str | None = None
    """The URL that was requested, so that its trouble slows no other URL. Default: the URL that was asked for."""

    def body(self, permit: str, slot: int, latency: float) -> Json:
        body: Json = {"permit": permit, "latency_ms": round(1000 * latency, 3)}
        if slot:
            body["slot"] = slot
        for name in ("status", "error", "body_start"):
            if getattr(self, name) is not None:
                body[name] = getattr(self, name)
        if self.headers:
            body["headers"] = dict(self.headers)
        if self.bytes:
            body["bytes"] = self.bytes
        if self.body_coming:
            body["body_coming"] = True
        if self.method != "GET":
            body["method"] = self.method
        if self.attempt != 1:
            body["attempt"] = self.attempt
        if self.refused:
            body["refused"] = self.refused
        if self.resource is not None:
            body["resource"] = self.resource
        return body


@dataclass(frozen=True)
class Next:
    """What becomes of a request, and the key's directions."""

    what: Literal["done", "retry", "give_up"] = "done"
    after: float = 0.0
    """``retry``: seconds to wait before a new permit is asked for."""
    reason: str = ""
    """``give_up``: why it would be answered alike."""
    late: bool = False
    """The permit was unknown, over or reported before: nothing was learned."""
    rate: float = 0.0
    """Requests per second for the key from now on."""
    hold: float = 0.0
    """Seconds in which nothing leaves for the key. Permits wait it out by themselves."""
    url_fault: bool = False
    """The failure counts against its URL alone: other URLs of the key go on as before."""

    @property
    def retry(self) -> bool:
        """Whether the request is worth sending again."""
        return self.what == "retry"

    @property
    def refused(self) -> bool:
        """Whether the host refused the request: it goes back to its key's line, and waits for nothing of its own."""
        return self.retry and self.after == 0.0

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Next:
        rest = {
            "late": answer.get("late", False),
            "rate": answer.get("rate", 0.0),
            "hold": answer.get("hold_ms", 0) / 1000,
            "url_fault": answer.get("url_fault", False),
        }
        match answer["next"]:
            case {"retry": retry}:
                return cls("retry", after=retry["after_ms"] / 1000, **rest)
            case {"give_up": give_up}:
                return cls("give_up", reason=give_up["reason"], **rest)
            case _:
                return cls(**rest)

