"""Transports for httpx2, on which the SDKs of OpenAI and Anthropic build.

>>> import httpx2
>>> from politely_client import Client
>>> from politely_client.httpx2 import PoliteTransport
>>> with Client() as client, httpx2.Client(transport=PoliteTransport(client)) as http:
...     http.get(url).status_code
200

They do what those of `politely_client.httpx` do, and take the same arguments. httpx2 sends the
requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2

from politely_client import httpx as polite
from politely_client.aio import AsyncClient
from politely_client.coordinator import Client

__all__ = ["AsyncPoliteTransport", "PoliteTransport"]


class PoliteTransport(httpx2.BaseTransport):
    """As `politely_client.httpx.PoliteTransport`, for `httpx2.Client`."""

    def __init__(
        self,
        coordinator: Client,
        transport: httpx2.BaseTransport | None = None,
        **asked: Any,
    ) -> None:
        inner = _Sender(transport or httpx2.HTTPTransport())
        self._polite = polite.PoliteTransport(coordinator, inner, **asked)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = self._polite.handle_request(_as(httpx, request))
        except httpx.TransportError as error:
            raise _error(error, request) from error
        return httpx2.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=_Back(response, request),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Closes the wrapped transport, not the coordinator."""
        self._polite.close()


class AsyncPoliteTransport(httpx2.AsyncBaseTransport):
    """As `politely_client.httpx.AsyncPoliteTransport`, for `httpx2.AsyncClient`."""

    def __init__(
        self,
        coordinator: AsyncClient,
        transport: httpx2.AsyncBaseTransport | None = None,
        **asked: Any,
    ) -> None:
        inner = _AsyncSender(transport or httpx2.AsyncHTTPTransport())
        self._polite = polite.AsyncPoliteTransport(coordinator, inner, **asked)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._polite.handle_async_request(_as(httpx, request))
        except httpx.TransportError as error:
            raise _error(error, request) from error
        return httpx2.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=_AsyncBack(response, request),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Closes the wrapped transport, not the coordinator."""
        await self._polite.aclose()


def _as(module: Any, request: httpx.Request | httpx2.Request) -> Any:
    """Returns the request as ``module`` has it. A body in memory can be sent again."""
    stream = request.stream
    body: dict[str, Any] = {"stream": stream}
    if isinstance(stream, (httpx.ByteStream, httpx2.ByteStream)):
        body = {"content": b"".join(stream)}
    converted = module.Request(request.method, str(request.url), **body)
    converted.headers = module.Headers(request.headers.raw)
    converted.extensions = dict(request.extensions)
    return converted


def _error(error: httpx.TransportError, request: httpx2.Request) -> Exception:
    """Returns the error of the same name in httpx2."""
    kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
    return kind(str(error), request=request)


class _Sender(httpx.BaseTransport):
    """Sends through a transport of httpx2."""

    def __init__(self, transport: httpx2.BaseTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._transport.handle_request(_as(httpx2, request))
        return httpx.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=_Forth(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._transport.close()


class _AsyncSender(httpx.AsyncBaseTransport):
    """As `_Sender`."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(_as(httpx2, request))
        return httpx.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=_AsyncForth(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Forth(httpx.SyncByteStream):
    """The body of an httpx2 response, for httpx."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, httpx2.SyncByteStream)
        yield from self._response.stream

    def close(self) -> None:
        self._response.close()


class _AsyncForth(httpx.AsyncByteStream):
    """As `_Forth`."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx2.AsyncByteStream)
        async for chunk in self._response.stream:
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


class _Back(httpx2.SyncByteStream):
    """The body of an httpx response, for httpx2."""

    def __init__(self, response: httpx.Response, request: httpx2.Request) -> None:
        self._response, self._request = response, request

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._response.stream, httpx.SyncByteStream)
        try:
            yield from self._response.stream
        except httpx.TransportError as error:
            raise _error(error, self._request) from error

    def close(self) -> None:
        self._response.close()


class _AsyncBack(httpx2.AsyncByteStream):
    """As `_Back`."""

    def __init__(self, response: httpx.Response, request: httpx2.Request) -> None:
        self._response, self._request = response, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        try:
            async for chunk in self._response.stream:
                yield chunk
        except httpx.TransportError as error:
            raise _error(error, self._request) from error

    async def aclose(self) -> None:
        await self._response.aclose()
