"""Locks on keys: the protocol, and the contexts that hold a lock.

Each lock has a session of its own. The session is renewed in the background while the context is
open, and ends with it. If the process dies, the lock ends with the session's time-out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from politely_client.bodies import Json, fresh_id, in_ms
from politely_client.errors import BadCall, LockLost, PolitelyError, TimedOut
from politely_client.flow import PAUSE_MIN, POLL_MAX, UNDO_TAKES_MAX, Abandoned, Flow, Talk

if TYPE_CHECKING:
    from politely_client.aio import AsyncClient
    from politely_client.coordinator import Client

log = logging.getLogger("politely_client")

TTL = 30.0
"""Default seconds after which the lock of a process that died ends."""
GONE = 410
"""Status of the coordinator's answer to a session that has ended."""


@dataclass(frozen=True)
class LockWish:
    """A request for a lock on a key."""

    key: str
    max: int = 1
    """The most holders of the key at once."""
    exclusive: bool = False
    """Whether no other session may hold the key, whatever its ``max``."""
    ttl: float = TTL
    """Seconds after which the lock ends if the process dies."""


@dataclass
class LockState:
    """A lock that is held."""

    wish: LockWish
    session: str
    fencing: int
    """The fencing number, larger than that of every earlier lock on the key."""
    until: float
    """The time until which the lock is held for certain, unless it is renewed."""
    over: bool = False

    def is_lost(self, now: float) -> bool:
        """Returns whether another session may hold the lock by now."""
        return self.over or now >= self.until


def acquire(talk: Talk, wish: LockWish, wait: float | None) -> Flow[LockState]:
    """Returns the lock, as soon as the key has room for one holder more."""
    deadline = talk.deadline(wait)
    session = ""
    try:
        while True:
            asked = talk.now()
            opened = yield from talk.ask(
                "sessions", lambda: {"client": talk.client, "ttl_ms": in_ms(wish.ttl)}, deadline
            )
            session = opened["session"]
            try:
                return (yield from _claim(talk, wish, session, deadline, asked))
            except BadCall as why:
                # The session ended, because the coordinator was unavailable for longer than it.
                if why.status != GONE or talk.now() >= deadline:
                    raise
    except (PolitelyError, Abandoned):
        if session:
            yield from _close(talk, session, talk.now() + UNDO_TAKES_MAX)
        raise


def _claim(
    talk: Talk, wish: LockWish, session: str, deadline: float, asked: float
) -> Flow[LockState]:
    claim: Json = {"session": session, "key": wish.key, "max": wish.max, "id": fresh_id()}
    if wish.exclusive:
        claim["mode"] = "exclusive"

    def body() -> Json:
        nonlocal asked
        asked = talk.now()
        left = min(POLL_MAX, max(0.0, deadline - asked))
        return claim | {"wait_ms": in_ms(left)}

    while True:
        answer = yield from talk.ask("locks", body, deadline)
        if answer["status"] == "held":
            # The session counts from the time of the call, because the answer may have taken long.
            lock = LockState(wish, session, answer["fencing"], asked + answer["ttl_ms"] / 1000)
            if talk.now() - asked > wish.ttl / 3:
                yield from renew(talk, lock, deadline)
            return lock
        pause = max(answer["retry_in_ms"] / 1000, PAUSE_MIN)
        if talk.now() + pause > deadline:
            raise TimedOut(f"{wish.key} is locked", position=answer["position"])
        yield from talk.sleep(pause)


def renew(talk: Talk, lock: LockState, deadline: float | None = None) -> Flow[None]:
    """Renews the lock. Raises `LockLost` if it has ended."""
    asked = talk.now()
    try:
        answer = yield from talk.ask(
            f"sessions/{quote(lock.session)}",
            dict,
            lock.until if deadline is None else deadline,
            method="PUT",
        )
    except BadCall as why:
        if why.status != GONE:
            raise
        lock.over = True
        raise LockLost(f"{lock.wish.key}: the session has ended") from why
    if not any(held["fencing"] == lock.fencing for held in answer["locks"]):
        lock.over = True
        raise LockLost(f"{lock.wish.key}: the lock {lock.fencing} has ended")
    lock.until = asked + lock.wish.ttl


def release(talk: Talk, lock: LockState) -> Flow[None]:
    """Ends the lock with its session."""
    if not lock.over:
        lock.over = True
        yield from _close(talk, lock.session, lock.until)


def _close(talk: Talk, session: str, until: float) -> Flow[None]:
    try:
        yield from talk.ask(f"sessions/{quote(session)}", dict, until, method="DELETE")
    except PolitelyError as why:
        log.debug("a session was not ended; it times out: %s", why)


class _Held:
    """A lock as far as it makes no call: the same for threads and for asyncio."""

    def __init__(self, wish: LockWish) -> None:
        self._wish = wish
        self._state: LockState | None = None

    @property
    def key(self) -> str:
        """The key that is locked."""
        return self._wish.key

    @property
    def fencing(self) -> int:
        """The fencing number. Pass it to the resource, so that it can refuse an older one."""
        if self._state is None:
            raise RuntimeError("the lock is not held; enter it as a context")
        return self._state.fencing

    @property
    def lost(self) -> bool:
        """Whether the lock has ended, so that the work on the key must stop."""
        return self._state is None or self._state.is_lost(time.monotonic())


class Lock(_Held):
    """A lock on a key, for ``with coordinator.lock(key) as lock``."""

    def __init__(self, coordinator: Client, wish: LockWish, wait: float | None) -> None:
        super().__init__(wish)
        self._coordinator, self._wait = coordinator, wait
        self._ended = threading.Event()

    def __enter__(self) -> Lock:
        flow = acquire(self._coordinator._talk, self._wish, self._wait)
        self._state = self._coordinator._run(flow)
        self._ended.clear()
        keeper = threading.Thread(target=self._keep, args=(self._state,), daemon=True)
        keeper.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        state = self._state
        if state is None:
            return
        was_lost = state.is_lost(time.monotonic())
        self._coordinator._run(release(self._coordinator._talk, state))
        if was_lost and error is None:
            raise LockLost(f"{self.key}: the lock ended before the work on it")

    def _keep(self, state: LockState) -> None:
        while not self._ended.wait(state.wish.ttl / 3):
            try:
                self._coordinator._run(renew(self._coordinator._talk, state))
            except PolitelyError as why:
                log.warning("%s", why)
                return


class AsyncLock(_Held):
    """A lock on a key, for ``async with coordinator.lock(key) as lock``.

    If the lock is lost, the body is cancelled and the context raises `LockLost`.
    """

    def __init__(self, coordinator: AsyncClient, wish: LockWish, wait: float | None) -> None:
        super().__init__(wish)
        self._coordinator, self._wait = coordinator, wait
        self._keeper: asyncio.Task[None] | None = None
        self._aborted = False

    async def __aenter__(self) -> AsyncLock:
        flow = acquire(self._coordinator._talk, self._wish, self._wait)
        self._state = await self._coordinator._run(flow)
        self._aborted = False
        body = asyncio.current_task()
        if body is not None:
            self._keeper = asyncio.create_task(self._keep(self._state, body))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._keeper:
            self._keeper.cancel()
        state = self._state
        if state is None:
            return
        if self._aborted and isinstance(error, asyncio.CancelledError):
            uncancel = getattr(asyncio.current_task(), "uncancel", None)  # since Python 3.11
            if uncancel is not None:
                uncancel()
            raise LockLost(f"{self.key}: the lock has ended; the work was cancelled") from error
        await self._coordinator._carry(release(self._coordinator._talk, state))

    async def _keep(self, state: LockState, body: asyncio.Task[Any]) -> None:
        while True:
            await asyncio.sleep(state.wish.ttl / 3)
            try:
                await self._coordinator._run(renew(self._coordinator._talk, state))
            except PolitelyError as why:
                log.warning("%s", why)
                left = state.until - time.monotonic()
                if not state.over and math.isfinite(left):
                    await asyncio.sleep(max(0.0, left))
                state.over = self._aborted = True
                body.cancel()
                return
