"""The bodies of the API as Python values: wishes, grants, outcomes and next steps.

The API uses milliseconds, and this module uses seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

Json: TypeAlias = "dict[str, Any]"

ErrorKind: TypeAlias = Literal[
    "no_such_host", "resolver", "connect", "tls", "timeout", "reset", "cut_off", "malformed"
]
"""The reason why no response came."""

SendBodies: TypeAlias = 'Literal["errors", "all"] | None'
"""The responses whose bodies the coordinator's rules read."""


CRAWL_DELAY_MAX = 86_400.0
"""Seconds. A longer Crawl-delay counts as a day."""


def fresh_id() -> str:
    """Returns an id that is unused, also in forked processes."""
    return uuid.uuid4().hex


def without_secrets(url: str) -> str:
    """Returns the URL without user, query and fragment, since keys do not need them."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def resource_of(url: str) -> str:
    """Returns the hash that names a URL in reports (64-bit FNV-1a), since its query may be secret."""
    sum = 0xCBF29CE484222325
    for byte in url.partition("#")[0].encode("utf-8", "replace"):
        sum = (sum ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{sum:016x}"


def in_ms(seconds: float) -> int:
    """Returns whole milliseconds, rounded up so that no call is early."""
    return max(0, -int(-seconds * 1000 // 1))


@dataclass(frozen=True)
class Wish:
    """An acquire request for one permit.

    If it is repeated under the same ``id``, it keeps its place in the queue and is charged once.
    """

    url: str | None = None
    """The URL of the request, which determines the key. Either this or ``key``."""
    key: str | None = None
    """``example.com``, ``site/example.co.uk``, ``custom/account-7``, …"""
    also: tuple[str, ...] = ()
    """Further keys whose limits the request must keep."""
    retry: bool = False
    """Whether the request was sent before."""
    cost: int | Mapping[str, int] = 1
    """Tokens of the rate, 1 to 1,000; or an estimate for each unit, as in
    ``{"requests": 1, "tokens": 1000}``. `Permit.settle` corrects it.
    """
    bytes: int = 0
    """Bytes that the request will send."""
    priority: int = 0
    """0 to 9. Each step is worth ten seconds in the queue."""
    max_wait: float | None = None
    """Seconds within which the request must start. Default: as long as the call waits."""
    slots: int = 1
    """The number of consecutive departures, 1 to 1,024."""
    crawl_delay: float | None = None
    """The host's Crawl-delay: seconds from the end of a request to the start of the next one.

    It holds for all workers.
    """
    crawl_delay_fresh: float | None = None
    """Seconds until that robots.txt is read again. Default and maximum: 24 hours."""
    method: str = "GET"
    """The method of the request, for the costs and keys in the coordinator's policy."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Values for the names of keys in the coordinator's policy, such as ``github/{token_name}``."""
    id: str = field(default_factory=fresh_id)

    @classmethod
    def of(cls, target: str | Wish) -> Wish:
        """Returns a wish for a URL if ``target`` has a scheme, otherwise for a key."""
        if isinstance(target, Wish):
            return target
        return cls(url=target) if "://" in target else cls(key=target)

    @property
    def target(self) -> str:
        """The URL or key as it was given."""
        return self.url or self.key or ""

    def again(self) -> Wish:
        """Returns the same wish with a new id."""
        return replace(self, id=fresh_id())

    def body(self) -> Json:
        """Returns the item of the API, without default values."""
        body: Json = {"id": self.id}
        if self.url is not None:
            body["url"] = without_secrets(self.url)
        if self.key is not None:
            body["key"] = self.key
        if self.also:
            body["also"] = list(self.also)
        if self.method != "GET":
            body["method"] = self.method
        if self.labels:
            body["labels"] = dict(self.labels)
        if self.retry:
            body["kind"] = "retry"
        if self.cost != 1:
            body["cost"] = self.cost if isinstance(self.cost, int) else dict(self.cost)
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
    send_bodies: SendBodies = None
    sent: Json | None = None
    """The item of a request that leaves on the worker's share. Its report names it."""

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
            send_bodies=answer.get("send_bodies"),
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request: a ``status``, or an ``error`` if there was none."""

    status: int | None = None
    error: ErrorKind | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body_start: str | None = None
    """The beginning of the body, if the status may be that of a block page, or if a rule of the
    coordinator reads it.
    """
    latency: float | None = None
    """Seconds from sending to the response's head. Default: the time since the permit's start."""
    bytes: int = 0
    used: Mapping[str, int] = field(default_factory=dict)
    """The amounts of units that the request used, such as tokens. They replace the estimates."""
    body_coming: bool = False
    """Whether the body is still coming. The slot then stays taken until the next report without
    this.
    """
    method: str = "GET"
    """The method of the request. Only a method that is safe to repeat is retried."""
    attempt: int = 1
    """The number of attempts at the request, this one included."""
    free: int = 0
    """The number of earlier attempts that did not count: the host refused them, or was down."""
    resource: str | None = None
    """The URL that was requested, so that its failures do not slow other URLs. Default: the wish's
    URL, if the permit has one departure.
    """

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
        if self.used:
            body["used"] = dict(self.used)
        if self.body_coming:
            body["body_coming"] = True
        if self.method != "GET":
            body["method"] = self.method
        if self.attempt != 1:
            body["attempt"] = self.attempt
        if self.free:
            body["free"] = self.free
        if self.resource is not None:
            body["resource"] = resource_of(self.resource)
        return body


@dataclass(frozen=True)
class Next:
    """The next step for a request, and the state of its key."""

    what: Literal["done", "retry", "give_up"] = "done"
    after: float = 0.0
    """``retry``: seconds to wait before a new permit is acquired."""
    free: bool = False
    """``retry``: whether the attempt does not count, because the host refused it or is down."""
    reason: str = ""
    """``give_up``: the reason why a retry is useless."""
    late: bool = False
    """Whether the permit was unknown, over or reported before. Nothing was learned then."""
    rate: float = 0.0
    """The key's requests per second from now on."""
    hold: float = 0.0
    """Seconds in which nothing leaves for the key. New permits wait for its end by themselves."""
    url_fault: bool = False
    """Whether the failure counts against its URL alone. Other URLs of the key are not slowed."""
    target_after: float = 0.0
    """Seconds for which a redirect asked to wait before its target is requested."""

    @property
    def retry(self) -> bool:
        """Whether the request should be sent again."""
        return self.what == "retry"

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Next:
        rest = {
            "late": answer.get("late", False),
            "rate": answer.get("rate", 0.0),
            "hold": answer.get("hold_ms", 0) / 1000,
            "url_fault": answer.get("url_fault", False),
            "target_after": answer.get("target_after_ms", 0) / 1000,
        }
        match answer["next"]:
            case {"retry": retry}:
                free = retry.get("free", False)
                return cls("retry", after=retry["after_ms"] / 1000, free=free, **rest)
            case {"give_up": give_up}:
                return cls("give_up", reason=give_up["reason"], **rest)
            case _:
                return cls(**rest)

