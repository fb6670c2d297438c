"""The coordinator client for asyncio: the API of `politely_client.coordinator`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType, TracebackType
from typing import Any, Generic, TypeVar

import httpx

from politely_client import shell
from politely_client.attempts import Attempts
from politely_client.bodies import Grant, Json, Next, Outcome, Wish
from politely_client.errors import BadCall, LeaseLost, PolitelyError, Refused, TooLate
from politely_client.flow import (
    UNDO_TAKES_MAX,
    Abandoned,
    Call,
    Flow,
    Limits,
    NoReply,
    Reply,
    Sleep,
)
from politely_client.locks import TTL, AsyncLock, LockWish
from politely_client.outcome import error_kind, url_of_failed
from politely_client.share import OnUnavailable
from politely_client.state import PermitState, PermitView

log = logging.getLogger("politely_client")

T = TypeVar("T")


class AsyncClient:
    """Acquires a permit from `politely serve` before each request, and reports the outcome.

    >>> import asyncio, httpx
    >>> from politely_client import AsyncClient
    >>> async def main():
    ...     async with AsyncClient() as client, httpx.AsyncClient() as http:
    ...         async with client.permit(url) as permit:  # waits until the request may leave
    ...             return await permit.report(await http.get(url, timeout=permit.lease_left))
    >>> asyncio.run(main()).what  # or "retry" after some seconds, or "give_up"
    'done'

    The parameters ``url``, ``client``, ``token``, ``on_unavailable``, ``transport`` and ``local`` are
    those of `politely_client.Client`, and so are the calls, which are awaited.
    """

    def __init__(
        self,
        url: str | Iterable[str] | None = None,
        *,
        client: str | None = None,
        token: str | None = None,
        on_unavailable: OnUnavailable = "wait",
        transport: httpx.AsyncBaseTransport | None = None,
        local: bool = True,
    ) -> None:
        self._places = shell.Places(url, local)
        self._talk = shell.talk(client, on_unavailable, self._places)
        self._settings = shell.settings(token, self._places)
        self._transport = transport
        self._http = self._connect()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        """Calls that continue after their caller has gone."""
        self._closed = False

    @property
    def client(self) -> str:
        """The client's name at the coordinator."""
        return self._talk.client

    async def acquire(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        wait: float | None = None,
        max_wait: float | None = None,
        also: Iterable[str] = (),
        priority: int = 0,
        slots: int = 1,
        cost: int | Mapping[str, int] = 1,
        bytes: int = 0,
        retry: bool = False,
        crawl_delay: float | None = None,
        method: str = "GET",
        labels: Mapping[str, str] | None = None,
    ) -> AsyncPermit:
        """Waits in the key's queue and returns when the request may leave.

        Raises `Refused`, `TimedOut` after ``wait`` seconds (`Unavailable` if the coordinator is
        unavailable), or `BadCall`. If it is cancelled, it leaves the queue, and gives back a permit
        that was just granted, in the background.
        """
        wish = Wish(
            url, key, tuple(also), retry, cost, bytes, priority, max_wait, slots, crawl_delay,
            method=method, labels=labels or {},
        )
        return AsyncPermit(self, await self._run(self._talk.acquire(wish, wait)))

    def permit(self, url: str | None = None, **asked: Any) -> Permitted:
        """Returns the context of ``async with coordinator.permit(url) as permit``; ``asked`` as in
        `acquire`.
        """
        return Permitted(self, url, asked)

    def lock(
        self,
        key: str,
        *,
        max: int = 1,
        exclusive: bool = False,
        wait: float | None = None,
        ttl: float = TTL,
    ) -> AsyncLock:
        """Returns the context of ``async with coordinator.lock(key, max=2) as lock``.

        At most ``max`` sessions hold the key at once, and waiting ones are served in order. The
        context raises `TimedOut` after ``wait`` seconds. ``ttl`` is the time in seconds after which
        the lock ends if this process dies.
        """
        return AsyncLock(self, LockWish(key, max, exclusive, ttl), wait)

    async def acquire_any(
        self, targets: Iterable[str | Wish], n: int = 1, *, wait: float | None = None
    ) -> list[AsyncPermit]:
        """As `politely_client.Client.acquire_any`."""
        wishes = [Wish.of(target) for target in targets]
        states = await self._run(self._talk.acquire_any(wishes, n, wait))
        return [AsyncPermit(self, state) for state in states]

    async def poll(
        self, wishes: Sequence[Wish], n: int, wait: float
    ) -> tuple[list[tuple[Wish, Grant | Refused | BadCall]], float]:
        """Makes one long poll for the first ``n`` permits, for loops with standing wishes.

        A wish without an answer keeps its place in the queue: pass it to the next poll. The
        returned number is the seconds until that poll is useful.
        """
        return await self._run(self._talk.poll(wishes, n, wait))

    async def attempts(
        self, url: str, *, method: str = "GET", **asked: Any
    ) -> AsyncIterator[AsyncPermit]:
        """As `politely_client.Client.attempts`."""
        attempts = Attempts(method)
        while True:
            permit = await self.acquire(
                url, retry=attempts.number > 1, method=method, **asked
            )
            permit.attempts = attempts
            try:
                yield permit
            finally:
                if not permit.state.over:
                    await permit.cancel(sent=True)
            pause = attempts.pause()
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def exchange(
        self,
        told: Iterable[tuple[AsyncPermit, Outcome]],
        targets: Iterable[str | Wish],
        n: int = 0,
        *,
        wait: float | None = None,
    ) -> tuple[list[Next], list[AsyncPermit]]:
        """As `politely_client.Client.exchange`."""
        pairs = [(permit.state, outcome) for permit, outcome in told]
        wishes = [Wish.of(target) for target in targets]
        nexts, states = await self._run(self._talk.exchange(pairs, wishes, n, wait))
        return nexts, [AsyncPermit(self, state) for state in states]

    async def report(self, told: Iterable[tuple[AsyncPermit, Outcome]]) -> list[Next]:
        """Reports the outcomes of several requests in one call."""
        pairs = [(permit.state, outcome) for permit, outcome in told]
        return await self._carry(self._talk.report(pairs))

    async def renew(self, permits: Iterable[AsyncPermit]) -> None:
        """As `politely_client.Client.renew`."""
        await self._run(self._talk.renew([permit.state for permit in permits]))

    async def cancel(self, permits: Iterable[AsyncPermit], *, sent: bool = False) -> None:
        """As `politely_client.Client.cancel`."""
        await self._carry(self._talk.cancel([permit.state for permit in permits], sent))

    async def set_limits(
        self,
        key: str,
        *,
        rate: float | EllipsisType | None = ...,
        burst: float | EllipsisType | None = ...,
        in_flight: int | EllipsisType | None = ...,
        limits: Sequence[str] | EllipsisType | None = ...,
        law: str | EllipsisType | None = ...,
        learn: bool | EllipsisType | None = ...,
    ) -> None:
        """As `politely_client.Client.set_limits`."""
        changes: Limits = {"rate": rate, "burst": burst, "in_flight": in_flight}
        changes |= {"limits": limits, "law": law, "learn": learn}
        await self._run(self._talk.set_limits(key, changes))

    async def call(
        self,
        path: str,
        body: Json,
        *,
        method: str = "POST",
        lines: Sequence[Json] | None = None,
    ) -> Any:
        """Makes a call of the API that is safe to repeat, and returns its answer as JSON.

        ``path`` is below ``/api/v1``. Raises `BadCall`, or `Unavailable` if no answer comes for 30 s.
        """
        return await self._run(self._talk.call(path, body, method, lines))

    async def aclose(self) -> None:
        """Closes the connections after the calls in the background. Unreported permits end with
        their leases.
        """
        while self._under_way and self._loop is asyncio.get_running_loop():
            await asyncio.wait(set(self._under_way))
        if self._talk.share.later:
            await self._run(self._talk.flush())
        self._closed = True
        if self._loop in (None, asyncio.get_running_loop()):
            await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        if self._closed:
            self._closed, self._loop, self._http = False, None, self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        """Runs a flow to its end.

        If the call is given up, the permits that it may have been granted are given back in the
        background.
        """
        reply: Reply | NoReply | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                done: T = end.value
                return done
            try:
                reply = await self._do(step)
            except BadCall:
                raise
            except BaseException:
                self._begin(self._abandoned(flow))
                raise

    async def _do(self, step: Call | Sleep) -> Reply | NoReply | None:
        if isinstance(step, Call):
            return await self._send(step)
        await asyncio.sleep(step.seconds)
        return None

    def _abandoned(self, flow: Flow[Any]) -> Flow[None]:
        """Returns the calls that a flow still makes after its caller has gone."""
        try:
            step = flow.throw(Abandoned())
            while True:
                step = flow.send((yield step))
        except (StopIteration, Abandoned, PolitelyError):
            return

    async def _carry(self, flow: Flow[T]) -> T:
        """Runs a flow to its end, even if its caller is cancelled."""
        return await asyncio.shield(self._begin(flow))

    def _begin(self, flow: Flow[T]) -> asyncio.Task[T]:
        """Starts a flow that runs to its end in the background."""
        carried = _Carried(flow)
        task = asyncio.ensure_future(self._to_the_end(carried))
        self._under_way.add(task)
        task.add_done_callback(partial(self._ended, carried))
        return task

    async def _to_the_end(self, carried: _Carried[T]) -> T:
        try:
            while True:
                carried.step = step = carried.flow.send(carried.reply)
                carried.reply = await self._do(step)
        except StopIteration as end:
            done: T = end.value
            return done

    def _ended(self, carried: _Carried[Any], task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if task.cancelled():
            # Only the end of the event loop cancels the task, so the remaining calls are made
            # synchronously.
            self._say_at_once(carried)
        elif error := task.exception():
            log.debug("a call ended with %r", error)  # the caller has it, or has gone

    def _say_at_once(self, carried: _Carried[Any]) -> None:
        transport = self._transport if isinstance(self._transport, httpx.BaseTransport) else None
        if self._transport is not None and transport is None:
            return
        flow, step = carried.flow, carried.step
        until = time.monotonic() + UNDO_TAKES_MAX
        with httpx.Client(**self._settings, transport=transport) as client:
            try:
                while time.monotonic() < until:
                    reply: Reply | NoReply | None = None
                    if isinstance(step, Call):
                        place = self._places.current()
                        call = replace(step, timeout=UNDO_TAKES_MAX)
                        request = shell.request_of(call, place.base, place.token)
                        try:
                            reply = shell.reply_of(client.request(**request), place.base)
                        except httpx.TransportError as error:
                            reply = self._places.missed(place, error)
                        reply = self._places.heard(place, reply)
                    step = flow.send(reply)
            except (StopIteration, PolitelyError):
                return

    def _connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._settings, transport=self._transport)

    def _connections(self) -> httpx.AsyncClient:
        """Returns connections of the running loop. Those of another loop cannot be used."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("the AsyncClient is closed; make another")
        if self._loop is not loop:
            if self._loop is not None:
                self._http = self._connect()
                self._under_way.clear()
            self._loop = loop
        return self._http

    async def _send(self, call: Call) -> Reply | NoReply:
        place = self._places.known()
        if place is None:
            place = await asyncio.to_thread(self._places.current)
        try:
            request = shell.request_of(call, place.base, place.token)
            response = await self._connections().request(**request)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return self._places.heard(place, self._places.missed(place, error))
        return self._places.heard(place, shell.reply_of(response, place.base))


class Permitted:
    """A permit that is acquired when it is entered as a context, or awaited."""

    def __init__(
        self, coordinator: AsyncClient, url: str | None, asked: dict[str, Any]
    ) -> None:
        self._coordinator, self._url, self._asked = coordinator, url, asked
        self._permit: AsyncPermit | None = None

    def __await__(self) -> Generator[Any, None, AsyncPermit]:
        return self._coordinator.acquire(self._url, **self._asked).__await__()

    async def __aenter__(self) -> AsyncPermit:
        self._permit = await self
        return await self._permit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._permit:
            await self._permit.__aexit__(kind, error, traceback)


class AsyncPermit(PermitView):
    """Leave for one request to start now and to last until its lease ends.

    As a context it waits for its start and renews its lease while the body runs. If the renewal
    fails, it cancels the body with `LeaseLost`. A context that ends without a report gives the
    permit back. An exception from the request is reported as evidence about the host.
    """

    def __init__(self, coordinator: AsyncClient, state: PermitState) -> None:
        super().__init__(state)
        self._coordinator = coordinator
        self._kept: contextlib.AbstractAsyncContextManager[None] | None = None
        self._aborted = False

    async def begin(self) -> None:
        """Waits for the start. Raises `TooLate` and gives the permit back if it has passed."""
        if not await self._coordinator._run(self._coordinator._talk.begin(self.state)):
            raise TooLate(f"{self.key}: the permit was not used in time")

    async def report(
        self, response: Any = None, *, outcome: Outcome | None = None, **told: Any
    ) -> Next:
        """As `politely_client.Permit.report`."""
        what = self._outcome(response, outcome, told)
        (next,) = await self._coordinator.report([(self, what)])
        if self.attempts and not what.body_coming:
            self.attempts.heard(next)
        return next

    async def failed(self, error: BaseException, **told: Any) -> Next:
        """Reports an exception of the request as evidence about the host.

        An exception that says nothing about the host gives the permit back as sent.
        """
        if kind := error_kind(error):
            told.setdefault("resource", url_of_failed(error))
            return await self.report(error=kind, **told)
        if self.slots == 1:
            await self.cancel(sent=True)
        return Next("give_up", reason=repr(error))

    async def renew(self) -> None:
        """Extends the lease. Raises `LeaseLost` if it has ended, and the request must then be
        aborted.
        """
        await self._coordinator._run(self._coordinator._talk.renew_one(self.state))

    async def cancel(self, *, sent: bool = False) -> None:
        """Gives the permit back. ``sent`` means that the request may have left."""
        await self._coordinator.cancel([self], sent=sent)

    async def __aiter__(self) -> AsyncIterator[AsyncPermit]:
        """Yields each departure at its time, as a permit with a report of its own."""
        for slot in range(self.slots):
            departure = AsyncPermit(self._coordinator, PermitState(self.state.grant, slot))
            await departure.begin()
            yield departure

    async def __aenter__(self) -> AsyncPermit:
        await self.begin()
        self._kept = self.kept()
        await self._kept.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._kept:
            await self._kept.__aexit__(kind, error, traceback)
        if self.state.over:
            return
        try:
            if error is not None:
                await self.failed(error)
            elif self.slots == 1:  # the other departures may be under way
                await self.cancel()
        except PolitelyError as why:  # the request's own error takes precedence
            log.warning("%s: not reported: %s", self.key, why)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renews the lease until the block ends, however long the host takes to answer.

        If the lease is lost, the block is cancelled and raises `LeaseLost`.
        """
        body = asyncio.current_task()
        keeper = asyncio.create_task(self._keep(body)) if body is not None else None
        try:
            yield
        except asyncio.CancelledError as error:
            if not self._aborted:
                raise
            _forget_cancellation()
            lost = f"{self.key}: the lease is over; the request was aborted"
            raise LeaseLost(lost) from error
        finally:
            if keeper is not None:
                keeper.cancel()

    async def _keep(self, body: asyncio.Task[Any]) -> None:
        """Renews the lease at half of its length, until it is lost."""
        while True:
            await asyncio.sleep(max(0.0, self.lease_left - self.state.grant.lease / 2))
            if self.state.over:
                return
            try:
                await self.renew()
            except PolitelyError as why:
                log.warning("%s: %s", self.key, why)
                await asyncio.sleep(self.lease_left)
                if not self.state.over:
                    self.state.lost = self._aborted = True
                    body.cancel()
                return


@dataclass
class _Carried(Generic[T]):
    """A flow that runs to its end, with its last step and reply."""

    flow: Flow[T]
    step: Call | Sleep | None = None
    reply: Reply | NoReply | None = None


def _forget_cancellation() -> None:
    """Uncounts the cancellation, since a task counts its cancellations from Python 3.11 on."""
    task = asyncio.current_task()
    uncancel = getattr(task, "uncancel", None)
    if uncancel is not None:
        uncancel()
