"""The protocol of the coordinator's clients, without any I/O.

Every call is a generator. It yields a `Call` or a `Sleep`, and receives the `Reply`, or a `NoReply`
with the reason. The sync and the asyncio shell only execute these two steps, so both send the same
calls.

A call without an answer is repeated under the same ids, after full jitter, until the caller's
deadline. The coordinator answers a repeated id with the same permit and charges it once. Without an
answer there is no permit, so nothing leaves while the coordinator is unavailable, unless the worker
goes on with its share (`politely_client.share`).
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from politely_client.bodies import Grant, Json, Next, Outcome, Wish, in_ms
from politely_client.errors import Unavailable, BadCall, LeaseLost, PolitelyError, Refused, TimedOut
from politely_client.share import Share
from politely_client.state import PermitState

log = logging.getLogger("politely_client")

POLL_MAX = 30.0
"""Maximum seconds for which a call is held open.

A place in the queue is kept for a minute, and proxies close connections that are silent for long.
"""
ASK_AGAIN_MAX = 45.0
"""Maximum seconds until a wish is repeated, so that it keeps its place in the queue."""
PAUSE_MIN = 0.01
"""Minimum seconds between two calls, independent of the answer."""
ANSWER_TAKES_MAX = 10.0
"""Seconds that a call may take beyond the time for which it is held open."""
LATE_MAX = 1.0
"""Seconds after the end of the caller's wait in which an answer still counts."""
WARN_EVERY = 30.0
"""Seconds between two warnings that the coordinator is unavailable, of all calls of a client."""
BACKOFF_BASE, BACKOFF_CAP = 0.1, 1.0
"""Seconds. The cap is low, because a permit costs the coordinator little and a sleeping worker
fetches nothing.
"""
REPORT_WITHIN = 30.0
"""Seconds for which a report is repeated."""
REPORTS_MAX = 4096
"""Maximum number of reports in one call, set by the coordinator."""
REPORTS_BYTES_MAX = 2 << 20
"""Maximum bytes of reports in one call: half of the coordinator's maximum, since the wishes of an
exchange need room too.
"""

CLOSING = "closing"
"""Code of refusals by a coordinator that is closing."""
ID_USED = "id_used"
"""Code of the refusal of a wish whose answer was lost until its permit had ended."""

ALONE_MAX = 5
"""Maximum attempts at a request whose permit the coordinator does not know."""

_FOR_NOW = frozenset({408, 429, 500, 502, 503, 504})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
BUSY = frozenset({425, 429, 503})
"""Statuses of a coordinator that answers and does not serve this client now."""
AWAY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a coordinator that is unavailable, or that does not serve this client now."""

_ANSWER_FIELDS = {"acquire": "items", "exchange": "acquire", "report": "items"}
"""A field that every answer to a call has, by the path of the call."""

UNDO_TAKES_MAX = 2.0
"""Seconds in which a call that was given up returns the permits that it may have been granted."""

T = TypeVar("T")
Limits: TypeAlias = "dict[str, float | str | Sequence[str] | EllipsisType | None]"
Batch: TypeAlias = "tuple[list[tuple[PermitState, Outcome]], list[Json]]"
"""The reports of one call, as objects and as JSON."""


@dataclass(frozen=True)
class Call:
    """A call that sends ``body`` to ``path`` below ``/api/v1``, and fails after ``timeout``
    seconds.
    """

    path: str
    body: Json
    timeout: float
    method: str = "POST"
    lines: Sequence[Json] | None = None
    """A body of one JSON object per line, instead of ``body``. The answer has lines as well."""


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    retry_after: float | None = None
    url: str = ""
    """The URL of the API that was called."""
    is_problem: bool = False
    """Whether the body is a problem document, as in every error of a coordinator."""


@dataclass(frozen=True)
class NoReply:
    why: str
    """The address that was called, and the reason why no answer came."""


Flow: TypeAlias = Generator["Call | Sleep", "Reply | NoReply | None", T]


class Abandoned(BaseException):
    """Thrown into a flow whose caller has gone.

    The flow returns the permits that it may have been granted, and ends.
    """


@dataclass
class Talk:
    """The calls of one client. ``now`` is a monotonic clock, and ``chance`` draws from 0 to 1."""

    client: str
    now: Callable[[], float]
    chance: Callable[[], float] = random.random
    away_since: float | None = None
    """The first failure since the last answer of the coordinator."""
    warned: float = -math.inf
    """The last warning that the coordinator is unavailable."""
    share: Share = field(default_factory=Share)
    """What to do while it is unavailable."""

    def deadline(self, wait: float | None) -> float:
        """Returns the end of the wait. ``None`` means no limit."""
        return math.inf if wait is None else self.now() + wait

    # Permits

    def acquire(self, wish: Wish, wait: float | None) -> Flow[PermitState]:
        """Returns a permit whose request may leave now."""
        deadline = self.deadline(wait)
        while True:
            (grant,) = yield from self.grants([wish], 0, deadline)
            permit = self.share.hold(PermitState(grant))
            try:
                begun = yield from self.begin(permit)
            except Abandoned:
                yield from self.cancel([permit], sent=False)
                raise
            if begun:
                return permit
            wish = wish.again()  # the process was suspended past the start

    def begin(self, permit: PermitState) -> Flow[bool]:
        """Sleeps until the permit's start. Returns false and gives the permit back if its time has
        passed.

        A permit of several departures is kept, since the others may be under way.
        """
        while (early := permit.start - self.now()) > 0:
            yield Sleep(early)
        if permit.may_start(self.now()):
            return True
        if permit.grant.slots == 1:
            yield from self.cancel([permit], sent=False)
        return False

    def acquire_any(
        self, wishes: Sequence[Wish], n: int, wait: float | None
    ) -> Flow[list[PermitState]]:
        """Returns the first available permits, at least one and at most ``n``, soonest first."""
        grants = yield from self.grants(wishes, n, self.deadline(wait))
        return self._held(grants)

    def _held(self, grants: Iterable[Grant]) -> list[PermitState]:
        """Returns the permits of grants, soonest first."""
        permits = [self.share.hold(PermitState(grant)) for grant in grants]
        return sorted(permits, key=lambda permit: permit.start)

    def exchange(
        self,
        told: Iterable[tuple[PermitState, Outcome]],
        wishes: Sequence[Wish],
        n: int,
        wait: float | None,
    ) -> Flow[tuple[list[Next], list[PermitState]]]:
        """Reports, then acquires permits for all wishes, or for the first ``n``."""
        deadline = self.deadline(wait)
        *before, (told, report) = self._batches(told) or [([], [])]
        heard = yield from self._report(before)
        asked = _Asked(self, wishes, n, deadline)

        def body() -> Json:
            return {**asked.sharing(), "report": report, "acquire": asked.items()}

        try:
            until = max(deadline, self.now() + REPORT_WITHIN)
            if self.share.on_unavailable == "share":
                heard += yield from self._report([(told, report)])
                told, report = [], []
            exchanged = yield from self._ask("exchange", body, until, asked=asked)
            if exchanged is None:
                return _none_wrong(heard), self._held(asked.grants)
        except Abandoned:
            if told:  # a repeated report counts once
                yield from self._report([(told, report)])
            yield from self._forget(wishes)
            raise
        heard += self._heard(told, exchanged["report"])
        try:
            pause = asked.hear({**exchanged, "items": exchanged["acquire"]})
            nexts = _none_wrong(heard)
            if wishes and pause is not None:
                yield from self._rest(pause, asked)
                yield from self._until_granted(asked)
        except PolitelyError:
            yield from self._give_back(asked)
            raise
        except Abandoned:
            yield from self._forget(wishes)
            raise
        return nexts, self._held(asked.grants)

    def grants(self, wishes: Sequence[Wish], n: int, deadline: float) -> Flow[list[Grant]]:
        """Repeats the call under the same ids until all (``n`` = 0) or some of the wishes are
        granted.
        """
        asked = _Asked(self, wishes, n, deadline)
        try:
            yield from self._until_granted(asked)
        except PolitelyError as error:
            yield from self._give_back(asked)
            if isinstance(error, Unavailable):
                yield from self._forget(asked.open, tries=1)  # a lost answer may hold permits
            raise
        except Abandoned:
            yield from self._forget(wishes)
            raise
        return asked.grants

    def poll(
        self, wishes: Sequence[Wish], n: int, wait: float
    ) -> Flow[tuple[list[tuple[Wish, Grant | Refused | BadCall]], float]]:
        """Makes one long poll for the first ``n`` of the wishes.

        Returns the answers, and the seconds until the next poll for the other wishes.
        """
        asked = _Asked(self, wishes, n, self.now() + wait)

        def body() -> Json:
            return {**asked.body(), "items": asked.items()}

        try:
            answer = yield from self._ask("acquire", body, math.inf)
        except Abandoned:
            yield from self._forget(wishes)
            raise
        now = self.now()
        items = [item for item in answer["items"] if item["status"] != "wait"]
        answers = [(wishes[item["item"]], _read(wishes, item, now)) for item in items]
        return answers, answer.get("retry_in_ms", 0) / 1000

    def _until_granted(self, asked: _Asked) -> Flow[None]:
        def body() -> Json:
            return {**asked.sharing(), "items": asked.items()}

        while True:
            answer = yield from self._ask("acquire", body, asked.deadline, asked=asked)
            if answer is None:  # a turn of the share serves it
                return
            pause = asked.hear(answer)
            yield from self._report_later()
            if pause is None:
                return
            yield from self._rest(pause, asked)

    def _rest(self, pause: float, asked: _Asked) -> Flow[None]:
        if self.now() + pause > asked.deadline:
            raise asked.timed_out
        yield Sleep(min(max(pause, PAUSE_MIN), ASK_AGAIN_MAX))

    def _give_back(self, asked: _Asked) -> Flow[None]:
        """Gives back the permits that came together with an error, since the caller sees only the
        error.
        """
        yield from self.cancel([PermitState(grant) for grant in asked.grants], sent=False)

    def _forget(self, wishes: Sequence[Wish], tries: int = 0) -> Flow[None]:
        """Gives up wishes by their ids, so that permits in a lost answer are returned."""
        if not wishes:
            return
        body = {"client": self.client, "permits": [wish.id for wish in wishes]}
        try:
            until = self.now() + (0.0 if tries == 1 else UNDO_TAKES_MAX)
            yield from self._ask("cancel", lambda: body, until)
        except PolitelyError as why:
            log.debug("%d ids were not given up: %s", len(wishes), why)

    # Outcomes

    def report(self, told: Iterable[tuple[PermitState, Outcome]]) -> Flow[list[Next]]:
        """Reports outcomes and returns the next steps.

        A repeated report counts once. A wrong report raises its error after all others are
        delivered.
        """
        heard = yield from self._report(self._batches(told))
        yield from self._report_later()
        return _none_wrong(heard)

    def _report_later(self) -> Flow[None]:
        """Reports what was kept while no coordinator answered, once one answers."""
        while self.share.later and not self.share.is_away:
            items = self.share.later[: REPORTS_MAX // 4]
            del self.share.later[: len(items)]
            body: Callable[[], Json] = partial(dict, client=self.client, items=items)
            try:
                answer = yield from self._ask("report", body, self.now())
            except BaseException as why:
                self.share.later[:0] = items  # a repeated report counts once
                if isinstance(why, Unavailable):
                    return
                raise
            for wrong in (item["error"] for item in answer["items"] if "error" in item):
                log.warning("a late report was refused: %s", wrong["detail"])

    def flush(self) -> Flow[None]:
        """Reports what was kept, before the client ends."""
        self.share.back()
        yield from self._report_later()
        if self.share.later:
            log.warning("%d requests were not reported", len(self.share.later))

    def _report(self, batches: Iterable[Batch]) -> Flow[list[Next | BadCall]]:
        heard: list[Next | BadCall] = []
        for told, items in batches:
            if not items:
                continue
            body: Callable[[], Json] = partial(dict, client=self.client, items=items)
            shares = self.share.on_unavailable == "share"
            try:
                until = self.now() + (0.0 if shares else REPORT_WITHIN)
                answer = yield from self._ask("report", body, until)
            except Unavailable:
                if not shares:
                    raise
                heard += self._kept(told, items)
                continue
            heard += self._heard(told, answer["items"])
        return heard

    def _kept(self, told: list[tuple[PermitState, Outcome]], items: list[Json]) -> list[Next]:
        """Keeps reports until a coordinator answers, and decides on the next steps alone."""
        nexts = []
        for (permit, outcome), item in zip(told, items, strict=True):
            self.share.keep(permit, item, outcome)
            permit.over = not outcome.body_coming
            nexts.append(self._alone(outcome, Next(late=True)))
        return nexts

    def _batches(self, told: Iterable[tuple[PermitState, Outcome]]) -> list[Batch]:
        """Splits reports into calls that the coordinator accepts. A single report always fits."""
        batches: list[Batch] = []
        room = 0
        for permit, outcome in told:
            item = self._told(permit, outcome)
            size = len(json.dumps(item)) + 1  # in ASCII, the longest encoding
            if not batches or size > room or len(batches[-1][1]) == REPORTS_MAX:
                batches.append(([], []))
                room = REPORTS_BYTES_MAX
            room -= size
            batches[-1][0].append((permit, outcome))
            batches[-1][1].append(item)
        return batches

    def renew(self, permits: Sequence[PermitState]) -> Flow[None]:
        """Extends leases. Permits whose leases have ended are marked `lost`."""
        permits = [permit for permit in permits if permit.grant.sent is None]
        if not permits:
            return
        names = {permit.name: permit for permit in permits}
        until = max(permit.lease_until for permit in permits)
        asked = self.now()
        answer = yield from self._ask(
            "renew", lambda: {"client": self.client, "permits": list(names)}, until
        )
        for renewed in answer["renewed"]:
            # The lease counts from the time of the call, because the answer may have taken long.
            names[renewed["permit"]].lease_until = asked + renewed["lease_ms"] / 1000
        for name in answer["lost"]:
            names[name].lost = True

    def renew_one(self, permit: PermitState) -> Flow[None]:
        """As `renew`, but raises `LeaseLost` if the lease has ended."""
        if not permit.is_lost(self.now()):
            yield from self.renew([permit])
        if permit.is_lost(self.now()):
            raise LeaseLost(f"{permit.key}: the lease is over; abort the request")

    def cancel(self, permits: Sequence[PermitState], sent: bool) -> Flow[None]:
        """Gives permits back. The call is repeated only for a short time, because a lease ends by
        itself.
        """
        for permit in permits:
            if sent and permit.grant.sent is not None and not permit.over:
                item = {"permit": permit.name, "sent": permit.grant.sent}
                self.share.keep(permit, item, None)
        of_coordinator = [permit for permit in permits if permit.grant.sent is None]
        names = [permit.name for permit in of_coordinator if not permit.over]
        body = {"client": self.client, "permits": names} | ({"sent": True} if sent else {})
        for permit in permits:
            permit.over = True
        if not names:
            return
        try:
            yield from self._ask("cancel", lambda: body, self.now() + BACKOFF_CAP)
        except Unavailable:
            log.warning("%d permits were not given back; their leases will end", len(names))

    def set_limits(self, key: str, limits: Limits) -> Flow[None]:
        """Sets an operator's limits of one key. Limits that are not named stay, and `None` removes
        one.
        """
        body = {name: number for name, number in limits.items() if number is not ...}
        path = f"keys/{quote(key, safe='')}"
        yield from self._ask(path, lambda: body, self.now() + REPORT_WITHIN, "PATCH")

    def _told(self, permit: PermitState, outcome: Outcome) -> Json:
        latency = outcome.latency
        if latency is None:
            latency = max(0.0, self.now() - permit.start)
        # The URL of several departures may stand for several pages.
        if outcome.resource is None and permit.grant.slots == 1 and "://" in permit.target:
            outcome = replace(outcome, resource=permit.target)
        if permit.used:
            outcome = replace(outcome, used={**permit.used, **outcome.used})
        item = outcome.body(permit.name, permit.slot, latency)
        return item if permit.grant.sent is None else {**item, "sent": permit.grant.sent}

    def _heard(
        self, told: Iterable[tuple[PermitState, Outcome]], answers: Any
    ) -> list[Next | BadCall]:
        heard: list[Next | BadCall] = []
        for (permit, outcome), answer in zip(told, answers, strict=True):
            if error := answer.get("error"):
                heard.append(BadCall(error["detail"], error["field"]))
                continue
            permit.over = not outcome.body_coming
            self.share.heard(permit.key, answer, self.now())
            next = Next.read(answer)
            heard.append(self._alone(outcome, next) if next.late else next)
        return heard

    def _alone(self, outcome: Outcome, next: Next) -> Next:
        """Decides on a retry if the coordinator does not know the permit.

        The coordinator was killed or the lease has ended, so the coordinator cannot judge the
        request. The request would be lost without this decision.
        """
        failed = outcome.error is not None or outcome.status in _FOR_NOW
        judged = next.what != "done"
        if judged or not failed or outcome.method not in _SAFE or outcome.attempt >= ALONE_MAX:
            return next
        return replace(next, what="retry", after=BACKOFF_CAP * (1 + self.chance()))

    # Repeating a call until there is an answer

    def sleep(self, seconds: float) -> Flow[None]:
        """Sleeps."""
        yield Sleep(seconds)

    def ask(
        self, path: str, body: Callable[[], Json], deadline: float, method: str = "POST"
    ) -> Flow[Any]:
        """Returns the body of the answer. Repeats a call without an answer until the deadline."""
        return (yield from self._ask(path, body, deadline, method))

    def _warn(self, why: str) -> None:
        """Logs that the coordinator is unavailable, at most once per `WARN_EVERY`."""
        now = self.now()
        if self.away_since is None:
            self.away_since = now
        if now - self.warned >= WARN_EVERY:
            self.warned = now
            away = round(now - self.away_since)
            log.warning(
                "the coordinator is unavailable for %d s (%s); nothing leaves; trying again",
                away,
                why,
            )

    def _is_back(self) -> None:
        if self.away_since is not None:
            away, self.away_since = round(self.now() - self.away_since), None
            log.info("the coordinator is available again after %d s", away)

    def call(self, path: str, body: Json, method: str, lines: Sequence[Json] | None) -> Flow[Any]:
        """Makes one call that is safe to repeat."""
        said = {"client": self.client, **body} if method == "POST" and lines is None else {}
        held: float = said.get("wait_ms", 0) / 1000
        until = self.now() + held + REPORT_WITHIN
        return (yield from self._ask(path, lambda: said, until, method, lines))

    def _ask(
        self,
        path: str,
        body: Callable[[], Json],
        deadline: float,
        method: str = "POST",
        lines: Sequence[Json] | None = None,
        asked: _Asked | None = None,
    ) -> Flow[Any]:
        """Returns the body of the answer, or `None` if a turn of the share serves ``asked``."""
        failures = 0
        while True:
            said = body()
            held = said.get("wait_ms", 0) / 1000
            is_on = self.share.is_on(self.now())
            takes = BACKOFF_CAP if is_on else held + ANSWER_TAKES_MAX
            if asked is not None or path == "cancel":
                takes = min(takes, max(0.0, deadline - self.now()) + LATE_MAX)
            reply = yield Call(path, said, takes, method, lines)
            assert reply is not None  # a `Call` always gets a reply
            if isinstance(reply, NoReply):
                why = reply.why
            elif reply.status in AWAY:
                why = f"{reply.url}: status {reply.status}"
            elif not _is_of_coordinator(reply, path):
                raise _no_coordinator(reply)
            elif reply.status < 300:
                self._is_back()
                self.share.back()
                return reply.body
            else:
                raise _problem(reply)
            pause = self.chance() * min(BACKOFF_CAP, BACKOFF_BASE * 2 ** min(failures, 16))
            if isinstance(reply, Reply) and reply.retry_after is not None:
                pause += reply.retry_after
            failures += 1
            if isinstance(reply, NoReply) or reply.status not in BUSY:
                self.share.away(self.now())
                if asked is not None and self.share.on_unavailable == "stop":
                    if failures >= self.share.coordinators:
                        raise Unavailable(why)
                    continue
                if asked is not None and (yield from asked.go_on(pause)):
                    return None
            if self.now() + pause > deadline:
                raise Unavailable(why)
            self._warn(why)
            yield Sleep(pause)


class _Asked:
    """Wishes that are not granted yet."""

    def __init__(self, talk: Talk, wishes: Sequence[Wish], n: int, deadline: float) -> None:
        self.talk, self.n, self.deadline = talk, n, deadline
        self.open = list(wishes)
        self.grants: list[Grant] = []
        self.timed_out = TimedOut("no answer")
        self.sent = talk.now()

    def body(self) -> Json:
        left = min(POLL_MAX, max(0.0, self.deadline - self.talk.now()))
        body: Json = {"client": self.talk.client, "wait_ms": in_ms(left)}
        return body | ({"want": {"any": self.n}} if self.n else {})

    def sharing(self) -> Json:
        """Returns the body of a call that keeps the worker's share."""
        self.sent = self.talk.now()
        body = self.body() | self.talk.share.asked()
        return body | ({"wait_ms": 0} if self.talk.share.is_on(self.sent) else {})

    def go_on(self, within: float) -> Flow[bool]:
        """Serves a wish with a turn of the worker's share within so many seconds, if there is one."""
        if not self.n and len(self.open) > 1:
            return False
        share, talk = self.talk.share, self.talk
        left = min(within, self.deadline - talk.now())
        taken = share.take_turn(self.open, left, talk.now())
        if taken is None:
            return False
        i, turn = taken
        if turn > talk.now():
            yield Sleep(turn - talk.now())
        if not share.is_on(talk.now()):  # a coordinator answers again
            return False
        self.grants.append(share.grant(self.open[i], talk.now()))
        return True

    def items(self) -> list[Json]:
        return [wish.body() for wish in self.open]

    def hear(self, answer: Json) -> float | None:
        """Returns the seconds until the next call, or `None` if no further call is needed.

        Grants are stored before an error is raised.
        """
        now = self.talk.now()
        self.talk.share.tell(answer.get("share"), self.sent, now)
        pause: float = answer.get("retry_in_ms", 0) / 1000
        waiting: list[Wish] = []
        refused: list[Refused] = []
        wrong: list[BadCall] = []
        settled: set[str] = set()
        anew: dict[str, Wish] = {}
        for item in answer["items"]:
            wish = self.open[item["item"]]
            if item["status"] == "wait":
                waiting.append(wish)
                self.timed_out = TimedOut(
                    item["reason"], item["retry_in_ms"] / 1000, item["position"]
                )
                pause = max(pause, self.timed_out.retry_in)
                continue
            read = _read(self.open, item, now)
            if isinstance(read, BadCall):
                wrong.append(read)
            elif isinstance(read, Refused) and read.code == ID_USED:
                anew[wish.id] = wish.again()
                waiting.append(wish)
            elif isinstance(read, Refused) and read.code == CLOSING:
                waiting.append(wish)
                pause = max(pause, BACKOFF_CAP)
            elif isinstance(read, Refused):
                settled.add(wish.id)
                refused.append(read)
            else:
                settled.add(wish.id)
                self.grants.append(read)
                self.talk.share.granted(wish, read, item.get("limit"), now)
        self.open = [anew.get(wish.id, wish) for wish in self.open if wish.id not in settled]
        if wrong:
            raise wrong[0]
        # With `n`, wishes without an answer may still be granted. Without it, every wish must be
        # granted.
        enough = (self.grants or not self.open) if self.n else (refused or not waiting)
        if enough and refused and not self.grants:
            raise refused[0]
        if self.n:  # the reason of one wish does not describe the others
            self.timed_out = TimedOut("none of them may leave", pause)
        return None if enough else pause


def _read(wishes: Sequence[Wish], item: Json, came: float) -> Grant | Refused | BadCall:
    wish = wishes[item["item"]]
    match item["status"]:
        case "granted":
            return Grant.read(wish, item, came)
        case "refused":
            retry_in = item.get("retry_in_ms")
            wait = None if retry_in is None else retry_in / 1000
            return Refused(item["code"], item["reason"], wait)
        case _:
            error = item["error"]
            return BadCall(error["detail"], f"{wish.target}: {error['field']}")


def _none_wrong(heard: Iterable[Next | BadCall]) -> list[Next]:
    nexts = []
    for each in heard:
        if isinstance(each, BadCall):
            raise each
        nexts.append(each)
    return nexts


def _is_of_coordinator(reply: Reply, path: str) -> bool:
    """Returns whether the answer may be one of a coordinator, and not of another web server."""
    if reply.status >= 300:
        return reply.is_problem
    field = _ANSWER_FIELDS.get(path)
    return isinstance(reply.body, list) or (
        isinstance(reply.body, dict) and (field is None or field in reply.body)
    )


def _no_coordinator(reply: Reply) -> BadCall:
    return BadCall(
        f"{reply.url}: this is no coordinator, or one of another version: it answers"
        f" {reply.status}; start `politely serve`, or name another with Client(url) or"
        " POLITELY_COORDINATOR",
        status=0,
    )


def _problem(reply: Reply) -> BadCall:
    problem = reply.body if isinstance(reply.body, dict) else {}
    detail = problem.get("detail") or problem.get("title") or f"status {reply.status}"
    return BadCall(str(detail), problem.get("field"), reply.status)
