"""Chooses the route of a request, directly or through a proxy, and never without a permit.

httpx takes proxies from the environment only for a client without a transport of its own. A client
with a proxy never calls its transport. Therefore the transports here choose the proxy themselves,
and `guard` passes them the arguments of the client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

_HELD = ("verify", "cert", "http1", "http2", "limits")
"""Arguments of a client for its transport, which it does not pass to a transport of the caller."""


class _Choice:
    """One transport per proxy, made at its first use."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._settings: dict[str, Any] = {}
        self._proxy: Any = None
        self._proxies = getproxies()
        self._made: dict[Any, Any] = {}

    def configure(self, proxy: Any, trust_env: bool, settings: dict[str, Any]) -> None:
        """Takes the arguments of a client."""
        if not trust_env:
            self._proxies = {}
        self._proxy = proxy
        self._settings = {"trust_env": trust_env, **settings}

    def of(self, url: httpx.URL) -> Any:
        """Returns the transport for requests to `url`."""
        proxy = self._proxy if self._proxy is not None else self._of_environment(url)
        key = str(proxy.url) if isinstance(proxy, httpx.Proxy) else proxy
        if key not in self._made:
            self._made[key] = self._make(**self._settings, proxy=proxy)
        return self._made[key]

    def _of_environment(self, url: httpx.URL) -> str | None:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not proxy or (url.host and proxy_bypass(url.netloc.decode("ascii"))):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def made(self) -> list[Any]:
        return list(self._made.values())


class Routes(_Choice, httpx.BaseTransport):
    """httpx's own transports, one per proxy."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = self.of(request.url).handle_request(request)
        return response

    def close(self) -> None:
        for transport in self.made():
            transport.close()


class AsyncRoutes(_Choice, httpx.AsyncBaseTransport):
    """As `Routes`."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await self.of(request.url).handle_async_request(request)
        return response

    async def aclose(self) -> None:
        for transport in self.made():
            await transport.aclose()


def guard(client: type[Any], polite: type[Any]) -> None:
    """Makes ``client`` pass its proxy to a ``polite`` transport instead of bypassing it."""
    begin = client.__init__

    @functools.wraps(begin)
    def guarded(self: Any, *args: Any, **given: Any) -> None:
        transport = given.get("transport")
        if isinstance(transport, polite):
            given = _handed_over(transport, given, polite)
        begin(self, *args, **given)

    client.__init__ = guarded


def _handed_over(transport: Any, given: dict[str, Any], polite: type[Any]) -> dict[str, Any]:
    """Passes arguments to the transport, and returns those that remain for the client."""
    mounts = given.get("mounts") or {}
    for pattern, mounted in mounts.items():
        if mounted is not None and not isinstance(mounted, polite):
            raise ValueError(
                f"mounts: requests to {pattern!r} would leave without a permit; mount a {polite.__name__}"
            )
    if given.get("proxies") is not None:
        raise ValueError("proxies: requests would leave without a permit; give proxy=")
    settings = {name: given[name] for name in _HELD if name in given}
    proxy = given.get("proxy")
    inner = transport._transport
    if isinstance(inner, _Choice):
        if isinstance(proxy, (str, httpx.URL)):
            proxy = httpx.Proxy(proxy)
        inner.configure(proxy, given.get("trust_env", True), settings)
    elif proxy is not None:
        raise ValueError(
            "proxy: the transport within is your own; give it the proxy: httpx.HTTPTransport(proxy=…)"
        )
    elif settings:
        names = ", ".join(settings)
        raise ValueError(f"{names}: the transport within is your own; set them there")
    return {name: value for name, value in given.items() if name != "proxy"}
