"""Transports for httpx that pace, report and retry every request of a client without further code.

>>> import httpx
>>> from politely_client import Client
>>> from politely_client.httpx import PoliteTransport
>>> with Client() as client, httpx.Client(transport=PoliteTransport(client)) as http:
...     http.get(url).status_code
200

A request is sent again if the coordinator says so and its body can be repeated. The caller gets the
last answer. Error answers are read whole before they are returned, because they decide what becomes
of the request. So are all answers if a rule of the coordinator reads them. Other bodies stream, and
the slot is taken until the body has come or is closed. The lease is renewed while the answer and
its body come, however long that takes. A time-out of ``None`` is that of one lease.
`AsyncPoliteTransport` aborts a request whose lease is lost.

A redirect's Retry-After delays the request for its target. A 206 that was not requested raises
`httpx.RemoteProtocolError`.

A wait for a permit does not count against httpx's time-outs. ``wait`` limits it, and the transport
raises `TimedOut` unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import finalize

import httpx

from politely_client.aio import AsyncClient, AsyncPermit
from politely_client.attempts import Attempts
from politely_client.bodies import Next, Outcome, SendBodies
from politely_client.coordinator import Client, Permit
from politely_client.errors import LeaseLost, PolitelyError
from politely_client.outcome import error_kind, evidence, is_read_whole
from politely_client.routes import AsyncRoutes, Routes, guard
from politely_client.state import PermitState, PermitView
from politely_client.targets import Targets, partial
from politely_client.units import BODY_USED_MAX, Used, asked_for, settle

log = logging.getLogger("politely_client")


class PoliteTransport(httpx.BaseTransport):
    """A transport that wraps another. ``asked`` as in `Client.acquire`.

    ``cost`` may be a callable that estimates the cost of an ``httpx.Request``. ``used`` is a
    callable that reads the amounts that a request used from the bytes of its body, such as
    `politely_client.usage.openai`.

    The default is httpx's own transport, with the proxies of the environment (HTTP_PROXY,
    HTTPS_PROXY, ALL_PROXY, NO_PROXY). Further arguments of
    ``httpx.Client(transport=PoliteTransport(…), …)`` apply too: ``proxy``, ``trust_env``,
    ``verify``, ``cert``, ``http1``, ``http2`` and ``limits``. With a transport of your own these
    are errors (`ValueError`): set them on that transport.
    """

    def __init__(
        self,
        coordinator: Client,
        transport: httpx.BaseTransport | None = None,
        *,
        used: Used | None = None,
        **asked: Any,
    ) -> None:
        self._coordinator = coordinator
        self._transport = transport or Routes(httpx.HTTPTransport)
        self._used = used
        self._asked = asked
        self._targets = Targets()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        attempts, repeatable = Attempts(request.method), _can_repeat(request)
        asked = asked_for(self._asked, request, request.method)
        if rest := self._targets.rest(str(request.url)):
            time.sleep(rest)
        while True:
            permit = self._coordinator.acquire(
                str(request.url), retry=attempts.number > 1, **asked
            )
            permit.attempts = attempts
            response = self._attempt(request, permit)
            pause = attempts.pause() if repeatable else None
            if pause is None:
                if isinstance(response, Exception):
                    raise response
                return response
            time.sleep(pause)

    def _attempt(self, request: httpx.Request, permit: Permit) -> httpx.Response | Exception:
        """Returns the answer, or the exception that ended the request."""
        _bound(request, permit.lease_left)
        sent = time.monotonic()
        permit.keep()
        try:
            response = self._transport.handle_request(request)
            latency = time.monotonic() - sent
            heard = _Heard(request, response, latency, self._targets, self._used, permit.state)
            if heard.is_whole:
                heard.read(response.read(), response)
                response.close()
        except BaseException as error:
            try:
                permit.failed(error)
            except PolitelyError as why:
                log.warning("%s: not reported: %s", permit.key, why)
            if isinstance(error, Exception):
                return error
            raise
        finally:
            permit._let_go()
        if heard.partial is not None:
            response.close()
            _tell(permit, heard)
            return httpx.RemoteProtocolError(heard.partial, request=request)
        if not heard.is_whole:
            body = _Body(response, permit, heard)
            finalize(body, _dropped, permit, heard, response)
            return heard.streaming(body)
        _tell(permit, heard)
        return heard.whole()

    def close(self) -> None:
        """Closes the wrapped transport, not the coordinator."""
        self._transport.close()


class AsyncPoliteTransport(httpx.AsyncBaseTransport):
    """As `PoliteTransport`, for `httpx.AsyncClient`."""

    def __init__(
        self,
        coordinator: AsyncClient,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        used: Used | None = None,
        **asked: Any,
    ) -> None:
        self._coordinator = coordinator
        self._transport = transport or AsyncRoutes(httpx.AsyncHTTPTransport)
        self._used = used
        self._asked = asked
        self._targets = Targets()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        attempts, repeatable = Attempts(request.method), _can_repeat(request)
        asked = asked_for(self._asked, request, request.method)
        if rest := self._targets.rest(str(request.url)):
            await asyncio.sleep(rest)
        while True:
            permit = await self._coordinator.acquire(
                str(request.url), retry=attempts.number > 1, **asked
            )
            permit.attempts = attempts
            response = await self._attempt(request, permit)
            pause = attempts.pause() if repeatable else None
            if pause is None:
                if isinstance(response, Exception):
                    raise response
                return response
            await asyncio.sleep(pause)

    async def _attempt(
        self, request: httpx.Request, permit: AsyncPermit
    ) -> httpx.Response | Exception:
        """Returns the answer, or the exception that ended the request."""
        _bound(request, permit.lease_left)
        sent = time.monotonic()
        try:
            async with permit.kept():
                response = await self._transport.handle_async_request(request)
                latency = time.monotonic() - sent
                heard = _Heard(
                    request, response, latency, self._targets, self._used, permit.state
                )
                if heard.is_whole:
                    heard.read(await response.aread(), response)
                    await response.aclose()
        except BaseException as error:
            if isinstance(error, LeaseLost):
                error = httpx.ReadTimeout(str(error), request=request)
            try:
                await permit.failed(error)
            except PolitelyError as why:
                log.warning("%s: not reported: %s", permit.key, why)
            if isinstance(error, Exception):
                return error
            raise
        if heard.partial is not None:
            await response.aclose()
            await _tell_async(permit, heard)
            return httpx.RemoteProtocolError(heard.partial, request=request)
        if not heard.is_whole:
            body = _AsyncBody(response, permit, heard)
            loop = asyncio.get_running_loop()
            finalize(body, _dropped_async, permit, heard, response, loop).atexit = False
            return heard.streaming(body)
        await _tell_async(permit, heard)
        return heard.whole()

    async def aclose(self) -> None:
        """Closes the wrapped transport, not the coordinator."""
        await self._transport.aclose()


def _can_repeat(request: httpx.Request) -> bool:
    """Returns whether the body can be sent again, which a stream cannot.

    The coordinator decides which methods are retried.
    """
    return isinstance(request.stream, httpx.ByteStream)


def _bound(request: httpx.Request, lease_left: float) -> None:
    """Sets time-outs that are missing to the lease, so that no request waits for ever."""
    timeouts = request.extensions.get("timeout", {})
    bounded = {
        name: lease_left if timeouts.get(name) is None else timeouts[name]
        for name in ("connect", "read", "write", "pool")
    }
    request.extensions = {**request.extensions, "timeout": bounded}


class _Heard:
    """The content of a response, for its report."""

    def __init__(
        self,
        request: httpx.Request,
        response: httpx.Response,
        latency: float,
        targets: Targets,
        used: Used | None,
        permit: PermitState,
    ) -> None:
        self.used = used
        self.asked: SendBodies = permit.grant.send_bodies
        self.is_whole = is_read_whole(response.status_code, self.asked)
        self.kept: list[bytes] = []
        """The body as it came, for `used`."""
        self.url = str(request.url)
        self.targets = targets
        self.status = response.status_code
        self.headers = response.headers
        self.extensions = response.extensions
        self.latency = latency
        self.bytes = 0
        self.error: BaseException | None = None
        self.partial = partial(
            self.status, self.headers.get("content-range"), "range" in request.headers
        )
        self._body = b""

    def read(self, body: bytes, response: httpx.Response) -> None:
        self._body = body
        self.bytes = response.num_bytes_downloaded

    def fields(self) -> dict[str, Any]:
        """Returns the fields of the report."""
        if self.error is not None:
            return {"error": error_kind(self.error) or "reset", "latency": self.latency}
        body = self._body if self.is_whole else None
        return {
            **evidence(self.status, self.headers, body, self.asked),
            "latency": self.latency,
            "bytes": self.bytes,
        }

    def keep(self, chunk: bytes) -> None:
        """Takes a part of the body."""
        self.bytes += len(chunk)
        if self.used is not None and self.bytes <= BODY_USED_MAX:
            self.kept.append(chunk)

    def settle(self, permit: PermitView) -> None:
        """Sets the amounts that the request used, from what came of its body."""
        if self.bytes <= BODY_USED_MAX:
            settle(permit, self.used, self._decoded)

    def _decoded(self) -> bytes:
        kept = b"".join(self.kept)
        return self._body or httpx.Response(self.status, headers=self.headers, content=kept).content

    def told(self, next: Next) -> None:
        """Takes the answer to the report."""
        self.targets.delay(self.url, self.headers.get("location"), next.target_after)

    def whole(self) -> httpx.Response:
        """Returns the answer with its decoded body."""
        # An answer to HEAD keeps the headers about the body that it does not have.
        of_body = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [
            (name, value)
            for name, value in self.headers.raw
            if not self._body or name.lower() not in of_body
        ]
        return httpx.Response(
            self.status, headers=headers, content=self._body, extensions=self.extensions
        )

    def streaming(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
        """Returns the answer with a body that is watched."""
        return httpx.Response(
            self.status, headers=self.headers, stream=stream, extensions=self.extensions
        )


def _tell(permit: Permit, heard: _Heard) -> None:
    if permit.state.over:
        return
    try:
        heard.settle(permit)
        heard.told(permit.report(**heard.fields()))
    except PolitelyError as why:  # a failed report must not lose the page
        log.warning("%s: not reported: %s", permit.key, why)


async def _tell_async(permit: AsyncPermit, heard: _Heard) -> None:
    if permit.state.over:
        return
    try:
        heard.settle(permit)
        heard.told(await permit.report(**heard.fields()))
    except PolitelyError as why:
        log.warning("%s: not reported: %s", permit.key, why)


def _dropped(permit: Permit, heard: _Heard, response: httpx.Response) -> None:
    """Closes and reports a response that was collected without being closed."""
    if permit.state.over:
        return

    def close() -> None:
        with contextlib.suppress(Exception):
            response.close()
        _tell(permit, heard)

    try:
        # The garbage collector must not wait for an answer.
        threading.Thread(target=close, daemon=True).start()
    except RuntimeError:  # the interpreter is ending
        close()


def _dropped_async(
    permit: AsyncPermit,
    heard: _Heard,
    response: httpx.Response,
    loop: asyncio.AbstractEventLoop,
) -> None:
    if permit.state.over or loop.is_closed():
        return

    async def close() -> None:
        with contextlib.suppress(Exception):
            await response.aclose()
        await _tell_async(permit, heard)

    def begin() -> None:
        task = loop.create_task(close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(begin)


_closing: set[asyncio.Task[None]] = set()
"""Strong references, since the event loop holds none to its tasks."""


class _Body(httpx.SyncByteStream):
    """A body that renews its lease while it comes, and reports at its end."""

    def __init__(self, response: httpx.Response, permit: Permit, heard: _Heard) -> None:
        self._response, self._permit, self._heard = response, permit, heard

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, httpx.SyncByteStream)
        self._permit.keep()  # the next part may take longer than the lease
        try:
            for chunk in self._response.stream:
                self._heard.keep(chunk)
                yield chunk
                if self._permit.state.wants_renewal(time.monotonic()):
                    self._permit.renew()
        except LeaseLost as lost:
            self._heard.error = httpx.ReadTimeout(str(lost))
            raise self._heard.error from lost
        except Exception as error:
            self._heard.error = error
            raise
        finally:
            self._permit._let_go()

    def close(self) -> None:
        self._response.close()
        _tell(self._permit, self._heard)


class _AsyncBody(httpx.AsyncByteStream):
    """As `_Body`."""

    def __init__(self, response: httpx.Response, permit: AsyncPermit, heard: _Heard) -> None:
        self._response, self._permit, self._heard = response, permit, heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        try:
            chunks = aiter(self._response.stream)
            while True:
                async with self._permit.kept():  # the next part may take longer than the lease
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                self._heard.keep(chunk)
                yield chunk
                if self._permit.state.wants_renewal(time.monotonic()):
                    await self._permit.renew()
        except LeaseLost as lost:
            self._heard.error = httpx.ReadTimeout(str(lost))
            raise self._heard.error from lost
        except Exception as error:
            self._heard.error = error
            raise

    async def aclose(self) -> None:
        await self._response.aclose()
        await _tell_async(self._permit, self._heard)


guard(httpx.Client, PoliteTransport)
guard(httpx.AsyncClient, AsyncPoliteTransport)
