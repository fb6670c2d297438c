"""A middleware for aiohttp that paces, reports and retries every request of a session.

>>> import asyncio, aiohttp
>>> from politely_client import AsyncClient
>>> from politely_client.aiohttp import PoliteMiddleware
>>> async def main() -> int:
...     async with AsyncClient() as client:
...         polite = PoliteMiddleware(client)
...         async with aiohttp.ClientSession(middlewares=[polite]) as session:
...             async with session.get(url) as response:
...                 return response.status
>>> asyncio.run(main())
200

A request is sent again if the coordinator says so and its body can be repeated. The caller gets the
last answer. Error answers are read whole before they are returned, because they decide what becomes
of the request. So are all answers if a rule of the coordinator reads them. Other bodies stream, and
the slot is taken until the body has come or the response is closed. The lease is renewed while the
answer and its body come. A request without an answer within ``timeout`` seconds raises
`asyncio.TimeoutError`. The default is the length of a lease.

Each hop of a redirect is a request of its own. A redirect's Retry-After delays the request for its
target. A 206 that was not requested raises `aiohttp.ClientPayloadError`.

aiohttp counts a wait for a permit against ``ClientTimeout(total=…)``, which is five minutes by
default. Use ``ClientTimeout(total=None)`` for hosts with long waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import aiohttp
from aiohttp.payload import BytesPayload, StringPayload

from politely_client.aio import AsyncClient, AsyncPermit
from politely_client.attempts import Attempts
from politely_client.bodies import SendBodies
from politely_client.errors import LeaseLost, PolitelyError
from politely_client.outcome import evidence, is_read_whole
from politely_client.targets import Targets, partial

log = logging.getLogger("politely_client")

_telling: set[asyncio.Task[None]] = set()
"""Strong references, since the event loop holds none to its tasks."""


class PoliteMiddleware:
    """A client middleware for ``aiohttp.ClientSession(middlewares=[…])``.

    ``asked`` as in `AsyncClient.acquire`.
    """

    def __init__(
        self, coordinator: AsyncClient, *, timeout: float | None = None, **asked: Any
    ) -> None:
        self._coordinator = coordinator
        self._timeout = timeout
        self._asked = asked
        self._targets = Targets()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        attempts = Attempts(request.method)
        url, repeatable = str(request.url), _can_repeat(request)
        if rest := self._targets.rest(url):
            await asyncio.sleep(rest)
        while True:
            permit = await self._coordinator.acquire(
                url, retry=attempts.number > 1, **self._asked
            )
            permit.attempts = attempts
            came = await self._attempt(request, handler, permit)
            pause = attempts.pause() if repeatable else None
            if pause is None:
                if isinstance(came, Exception):
                    raise came
                return came
            await asyncio.sleep(pause)

    async def _attempt(
        self,
        request: aiohttp.ClientRequest,
        handler: aiohttp.ClientHandlerType,
        permit: AsyncPermit,
    ) -> aiohttp.ClientResponse | Exception:
        """Returns the answer, or the exception that ended the request."""
        sent = time.monotonic()
        try:
            async with permit.kept():
                within = self._timeout or permit.lease_left
                response = await asyncio.wait_for(handler(request), within)
                latency = time.monotonic() - sent
                asked = permit.state.grant.send_bodies
                heard = _Heard(request, response, latency, self._targets, asked)
                if is_read_whole(response.status, asked):
                    heard.body = await asyncio.wait_for(response.read(), within)
        except BaseException as error:
            if isinstance(error, LeaseLost):
                error = aiohttp.ServerTimeoutError(str(error))
            try:
                await permit.failed(error, resource=str(request.url))
            except PolitelyError as why:  # a failed report must not lose the request's error
                log.warning("%s: not reported: %s", permit.key, why)
            if isinstance(error, Exception):
                return error
            raise
        content_range = response.headers.get("content-range")
        wrong = partial(response.status, content_range, "range" in request.headers)
        if wrong is not None:
            response.close()
            await _tell(permit, heard)
            return aiohttp.ClientPayloadError(wrong)
        if response.status >= 400 or response.content.at_eof():
            await _tell(permit, heard)
        else:
            _tell_at_the_end(permit, heard, response)
        return response


def _can_repeat(request: aiohttp.ClientRequest) -> bool:
    """Returns whether the body can be sent again, which a stream cannot."""
    return isinstance(request.body, (bytes, BytesPayload, StringPayload))


class _Heard:
    """The content of a response, for its report."""

    def __init__(
        self,
        request: aiohttp.ClientRequest,
        response: aiohttp.ClientResponse,
        latency: float,
        targets: Targets,
        asked: SendBodies,
    ) -> None:
        self.asked: SendBodies = asked
        self.url = str(request.url)
        self.status = response.status
        self.headers = response.headers
        self.content = response.content
        self.latency = latency
        self.targets = targets
        self.body: bytes | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of the report."""
        return {
            **evidence(self.status, self.headers, self.body, self.asked),
            "latency": self.latency,
            "bytes": self.content.total_bytes,
            "resource": self.url,
        }


async def _tell(permit: AsyncPermit, heard: _Heard) -> None:
    if permit.state.over:
        return
    try:
        next = await permit.report(**heard.fields())
    except PolitelyError as why:  # a failed report must not lose the page
        log.warning("%s: not reported: %s", permit.key, why)
        return
    heard.targets.delay(heard.url, heard.headers.get("location"), next.target_after)


def _tell_at_the_end(
    permit: AsyncPermit, heard: _Heard, response: aiohttp.ClientResponse
) -> None:
    """Renews the lease while the body comes, and reports once it has come or is closed."""
    loop = asyncio.get_running_loop()
    keeper = loop.create_task(_keep(permit, heard.content))
    _telling.add(keeper)
    keeper.add_done_callback(_telling.discard)
    has_ended = False

    def ended() -> None:
        nonlocal has_ended
        if has_ended or loop.is_closed():
            return
        has_ended = True
        keeper.cancel()
        task = loop.create_task(_tell(permit, heard))
        _telling.add(task)
        task.add_done_callback(_telling.discard)

    close = response.close

    def close_and_tell() -> None:
        close()
        ended()

    release = response.release

    def release_and_tell() -> Any:
        released = release()
        ended()
        return released

    heard.content.on_eof(ended)
    response.close = close_and_tell  # type: ignore[method-assign]
    response.release = release_and_tell  # type: ignore[method-assign]


async def _keep(permit: AsyncPermit, content: aiohttp.StreamReader) -> None:
    """Renews the lease at half of its length. A lease that is lost ends the body."""
    while not permit.state.over:
        await asyncio.sleep(max(0.0, permit.lease_left - permit.state.grant.lease / 2))
        try:
            await permit.renew()
        except PolitelyError as why:
            log.warning("%s: %s", permit.key, why)
            await asyncio.sleep(permit.lease_left)
            content.set_exception(aiohttp.ServerTimeoutError(f"{permit.key}: the lease is over"))
            return
