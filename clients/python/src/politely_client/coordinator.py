"""The coordinator client for threads: every call blocks."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import EllipsisType, TracebackType
from typing import Any, TypeVar

import httpx

from politely_client import shell
from politely_client.attempts import Attempts
from politely_client.bodies import Next, Outcome, Wish
from politely_client.errors import BadCall, PolitelyError, TooLate
from politely_client.flow import Abandoned, Call, Flow, Limits, NoReply, Reply, Sleep
from politely_client.locks import TTL, Lock, LockWish
from politely_client.outcome import error_kind, url_of_failed
from politely_client.share import OnUnavailable
from politely_client.state import PermitState, PermitView

log = logging.getLogger("politely_client")

T = TypeVar("T")


class Client:
    """Acquires a permit from `politely serve` before each request, and reports the outcome.

    >>> import httpx
    >>> from politely_client import Client
    >>> with Client() as client:  # of POLITELY_COORDINATOR, or the user's own
    ...     with client.permit(url) as permit:  # waits until the request may leave
    ...         next = permit.report(httpx.get(url, timeout=permit.lease_left))
    >>> next.what  # or "retry" after some seconds, or "give_up"
    'done'

    `attempts` repeats a request for as long as the coordinator says so. Every call blocks, and
    `AsyncClient` has the same calls for asyncio. A client may be shared between threads, and with
    forked processes.

    - ``url``: the coordinator, such as ``http://127.0.0.1:7077``. Without a scheme, ``http://`` is
      assumed. The default is ``POLITELY_COORDINATOR`` in the environment, or the user's own
      coordinator on this machine, which is started if it does not run. Several coordinators that
      share their keys are a list, or are separated by commas: if one does not answer or is closing,
      the next one is called.
    - ``client``: the worker's name at the coordinator. The default is the host and the process id.
    - ``token``: the coordinator's token. The default is ``POLITELY_TOKEN`` in the environment.
    - ``on_unavailable``: what to do while no coordinator answers. ``"wait"``: nothing leaves.
      ``"share"``: this worker goes on with its share of each key's limit, if the coordinator allows
      it; reports are kept and sent later. ``"stop"``: `Unavailable` is raised at once.
    - ``transport``: sends the calls to the coordinator; for tests.
    - ``local``: whether the user's own coordinator may be used. Its program is
      ``POLITELY_PROGRAM`` in the environment, or the one that was installed with this package, or
      ``politely`` on the path.

    Raises `ValueError` if a URL is invalid, or if ``local`` is false and none is named. Nothing is sent before the first call. In the calls,
    ``wait`` is the longest time in seconds to wait for a permit. ``None`` means no limit, also
    while the coordinator is unavailable.
    """

    def __init__(
        self,
        url: str | Iterable[str] | None = None,
        *,
        client: str | None = None,
        token: str | None = None,
        on_unavailable: OnUnavailable = "wait",
        transport: httpx.BaseTransport | None = None,
        local: bool = True,
    ) -> None:
        self._places = shell.Places(url, local)
        self._talk = shell.talk(client, on_unavailable, self._places)
        settings = shell.settings(token, self._places)
        self._connect = partial(httpx.Client, **settings, transport=transport)
        self._http = self._connect()
        self._process = os.getpid()

    @property
    def client(self) -> str:
        """The client's name at the coordinator."""
        return self._talk.client

    def acquire(
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
    ) -> Permit:
        """Blocks in the key's queue until the request may leave.

        Raises `Refused`, `TimedOut` after ``wait`` seconds (`Unavailable` if the coordinator is
        unavailable), or `BadCall`.
        """
        wish = Wish(
            url, key, tuple(also), retry, cost, bytes, priority, max_wait, slots, crawl_delay,
            method=method, labels=labels or {},
        )
        return Permit(self, self._run(self._talk.acquire(wish, wait)))

    permit = acquire
    """The same as `acquire`, for ``with coordinator.permit(url) as permit``."""

    def lock(
        self,
        key: str,
        *,
        max: int = 1,
        exclusive: bool = False,
        wait: float | None = None,
        ttl: float = TTL,
    ) -> Lock:
        """Returns the context of ``with coordinator.lock(key, max=2) as lock``.

        At most ``max`` sessions hold the key at once, and waiting ones are served in order. The
        context raises `TimedOut` after ``wait`` seconds. ``ttl`` is the time in seconds after which
        the lock ends if this process dies.
        """
        return Lock(self, LockWish(key, max, exclusive, ttl), wait)

    def acquire_any(
        self, targets: Iterable[str | Wish], n: int = 1, *, wait: float | None = None
    ) -> list[Permit]:
        """Returns the first available permits for up to 4,096 URLs or keys, soonest first.

        There is at least one and at most ``n``. Nothing is taken of the other targets.
        `Permit.target` names the URL or key. A permit may start a little later: ``with permit:``
        (or `Permit.begin`) waits for that. Raises as `acquire`, and `Refused` only if all are
        refused.
        """
        wishes = [Wish.of(target) for target in targets]
        states = self._run(self._talk.acquire_any(wishes, n, wait))
        return [Permit(self, state) for state in states]

    def attempts(self, url: str, *, method: str = "GET", **asked: Any) -> Iterator[Permit]:
        """Yields a permit per attempt, until a report ends the request; see `Permit.report`.

        ``asked`` is as in `acquire`. An attempt whose permit was not reported (`Permit.report`,
        `Permit.failed`) is the last.
        """
        attempts = Attempts(method)
        while True:
            permit = self.acquire(url, retry=attempts.number > 1, method=method, **asked)
            permit.attempts = attempts
            with permit:
                yield permit
            pause = attempts.pause()
            if pause is None:
                return
            time.sleep(pause)

    def exchange(
        self,
        told: Iterable[tuple[Permit, Outcome]],
        targets: Iterable[str | Wish],
        n: int = 0,
        *,
        wait: float | None = None,
    ) -> tuple[list[Next], list[Permit]]:
        """Reports, and acquires permits in the same round trip.

        The permits are for all targets, or with ``n`` as in `acquire_any`.
        """
        pairs = [(permit.state, outcome) for permit, outcome in told]
        wishes = [Wish.of(target) for target in targets]
        nexts, states = self._run(self._talk.exchange(pairs, wishes, n, wait))
        return nexts, [Permit(self, state) for state in states]

    def report(self, told: Iterable[tuple[Permit, Outcome]]) -> list[Next]:
        """Reports the outcomes of several requests in one call."""
        return self._run(self._talk.report((permit.state, outcome) for permit, outcome in told))

    def renew(self, permits: Iterable[Permit]) -> None:
        """Extends leases. Abort the request of a permit that is `Permit.lost` afterwards."""
        self._run(self._talk.renew([permit.state for permit in permits]))

    def cancel(self, permits: Iterable[Permit], *, sent: bool = False) -> None:
        """Gives permits back. ``sent`` means that the requests may have left, so their tokens stay
        spent.
        """
        self._run(self._talk.cancel([permit.state for permit in permits], sent))

    def set_limits(
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
        """Sets limits of one key, as an operator does. Absent limits stay, and ``None`` removes
        one.

        ``rate`` is in requests per second, an upper bound on a key that learns. ``burst`` is the
        number of requests that may leave at once. ``limits`` are further limits that all hold, such
        as ``["10/s", "1000/day@UTC", "100 concurrent"]``. ``law`` ``fixed`` makes these numbers the limits
        themselves. ``learn`` ``False`` freezes the learned state. Raises `Unavailable`, `BadCall`.
        """
        changes: Limits = {"rate": rate, "burst": burst, "in_flight": in_flight}
        changes |= {"limits": limits, "law": law, "learn": learn}
        self._run(self._talk.set_limits(key, changes))

    def close(self) -> None:
        """Closes the connections. Unreported permits end with their leases."""
        if self._talk.share.later:
            self._run(self._talk.flush())
        self._connections().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        reply: Reply | NoReply | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                done: T = end.value
                return done
            try:
                reply = self._do(step)
            except BadCall:
                raise
            except BaseException:  # Ctrl-C, or an exception of a signal handler
                self._abandon(flow)
                raise

    def _do(self, step: Call | Sleep) -> Reply | NoReply | None:
        if isinstance(step, Call):
            return self._send(step)
        time.sleep(step.seconds)
        return None

    def _abandon(self, flow: Flow[Any]) -> None:
        """Gives back the permits that a flow may have been granted, after its caller has gone."""
        try:
            step = flow.throw(Abandoned())
            while True:
                step = flow.send(self._do(step))
        except (StopIteration, Abandoned, PolitelyError):
            return

    def _connections(self) -> httpx.Client:
        """Returns the connections of this process, since a forked process would read its parent's
        answers.
        """
        if self._process != os.getpid():
            self._process = os.getpid()
            if not self._http.is_closed:
                self._http = self._connect()
        return self._http

    def _send(self, call: Call) -> Reply | NoReply:
        place = self._places.current()
        try:
            request = shell.request_of(call, place.base, place.token)
            response = self._connections().request(**request)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return self._places.heard(place, self._places.missed(place, error))
        return self._places.heard(place, shell.reply_of(response, place.base))


class Permit(PermitView):
    """Leave for one request to start now and to last until its lease ends.

    As a context it waits for its start. A context that ends without a report gives the permit back.
    An exception from the request is reported as evidence about the host.
    """

    def __init__(self, coordinator: Client, state: PermitState) -> None:
        super().__init__(state)
        self._coordinator = coordinator
        self._kept: threading.Event | None = None
        """An event that ends the thread that renews the lease."""

    def begin(self) -> None:
        """Waits for the start. Raises `TooLate` and gives the permit back if it has passed."""
        if not self._coordinator._run(self._coordinator._talk.begin(self.state)):
            raise TooLate(f"{self.key}: the permit was not used in time")

    def report(
        self, response: Any = None, *, outcome: Outcome | None = None, **told: Any
    ) -> Next:
        """Reports an ``httpx.Response`` or ``requests.Response``, an `Outcome`, or its fields by
        name.

        Only headers that matter are sent, and the beginning of the body if the status may be that
        of a block page. If a rule of the coordinator reads more, more is sent; a body that it needs
        and that was not read is an error. Raises `Unavailable`, `BadCall`.
        """
        what = self._outcome(response, outcome, told)
        (next,) = self._coordinator.report([(self, what)])
        if self.attempts and not what.body_coming:
            self.attempts.heard(next)
        return next

    def failed(self, error: BaseException, **told: Any) -> Next:
        """Reports an exception of the request as evidence about the host.

        An exception that says nothing about the host gives the permit back as sent.
        """
        if kind := error_kind(error):
            told.setdefault("resource", url_of_failed(error))
            return self.report(error=kind, **told)
        if self.slots == 1:
            self.cancel(sent=True)
        return Next("give_up", reason=repr(error))

    def renew(self) -> None:
        """Extends the lease. Raises `LeaseLost` if it has ended, and the request must then be
        aborted.
        """
        self._coordinator._run(self._coordinator._talk.renew_one(self.state))

    def cancel(self, *, sent: bool = False) -> None:
        """Gives the permit back. ``sent`` means that the request may have left."""
        self._coordinator.cancel([self], sent=sent)

    def keep(self) -> None:
        """Renews the lease in a thread of its own until the permit is over. `lost` tells of a
        failure.
        """
        self._let_go()
        self._kept = threading.Event()
        threading.Thread(target=self._keep, args=(self._kept,), daemon=True).start()

    def _keep(self, end: threading.Event) -> None:
        """Renews the lease at half of its length."""
        try:
            while not end.wait(max(0.0, self.lease_left - self.state.grant.lease / 2)):
                if self.state.over:
                    return
                self.renew()
        except PolitelyError as error:
            log.warning("%s: %s", self.key, error)

    def _let_go(self) -> None:
        """Ends `keep`. The permit itself may continue."""
        if self._kept:
            self._kept.set()

    def __iter__(self) -> Iterator[Permit]:
        """Yields each departure at its time, as a permit with a report of its own."""
        for slot in range(self.slots):
            departure = Permit(self._coordinator, PermitState(self.state.grant, slot))
            departure.begin()
            yield departure

    def __enter__(self) -> Permit:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._let_go()
        if self.state.over:
            return
        try:
            if error is not None:
                self.failed(error)
            elif self.slots == 1:  # the other departures may be under way
                self.cancel()
        except PolitelyError as why:  # the request's own error takes precedence
            log.warning("%s: not reported: %s", self.key, why)
