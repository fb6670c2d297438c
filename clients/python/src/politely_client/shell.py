"""The HTTP part that both shells share: settings, requests and replies."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import httpx

from politely_client.errors import BadCall
from politely_client.local import Local, Place
from politely_client.share import OnUnavailable, Share
from politely_client.flow import AWAY, CLOSING, Call, NoReply, Reply, Talk
from politely_client.outcome import chain_of

log = logging.getLogger("politely_client")

CONNECT_TAKES_MAX = 5.0


def talk(client: str | None, on_unavailable: OnUnavailable, places: Places) -> Talk:
    if on_unavailable not in ("wait", "share", "stop"):
        raise ValueError(f'on_unavailable is "wait", "share" or "stop", not {on_unavailable!r}')
    name = client or f"{socket.gethostname()}-{os.getpid()}"[:128]
    return Talk(name, time.monotonic, share=Share(on_unavailable, len(places)))


class Places:
    """Coordinators that share their keys, or the local one if none is named.

    The first is called. If it does not answer or is closing, the next one is called. The local one
    is started again instead.
    """

    def __init__(self, urls: str | Iterable[str] | None, local: bool) -> None:
        urls = os.environ.get("POLITELY_COORDINATOR") or None if urls is None else urls
        self._local = Local() if urls is None else None
        if urls is None and not local:
            raise ValueError("no coordinator is named: set POLITELY_COORDINATOR, or use Client(url)")
        named = urls.split(",") if isinstance(urls, str) else urls or ()
        self._named = [Place(_base(url.strip())) for url in named]
        if not self._named and not self._local:
            raise ValueError("no coordinator is named")
        self._current = 0

    def __len__(self) -> int:
        return 2 if self._local else len(self._named)  # the second is the restarted one

    @property
    def have_tls(self) -> bool:
        return any(place.base.startswith("https:") for place in self._named)

    def known(self) -> Place | None:
        """Returns the coordinator to call, or `None` if `current` would block."""
        return self._local.known() if self._local else self._named[self._current]

    def current(self) -> Place:
        """Returns the coordinator to call. Raises `BadCall` if the local one cannot be started."""
        return self._local.find() if self._local else self._named[self._current]

    def heard(self, place: Place, reply: Reply | NoReply) -> Reply | NoReply:
        """Takes the reply of the coordinator at ``place``.

        If it does not serve the call, the next coordinator is called from now on.
        """
        if self._local and isinstance(reply, Reply) and _is_of_stranger(reply):
            reply = NoReply(f"{reply.url}: another program answers there")
        if len(self) == 1 or not _is_leaving(reply):
            return reply
        if self._local:
            self._local.lost(place)
        elif self._named[self._current] is place:  # of concurrent failures only one moves on
            self._current = (self._current + 1) % len(self._named)
        # The Retry-After is only about the coordinator that sent it.
        return reply if isinstance(reply, NoReply) else replace(reply, retry_after=None)

    def missed(self, place: Place, error: httpx.TransportError | httpx.InvalidURL) -> NoReply:
        """Takes the error of a call. Raises `BadCall` if no retry can succeed."""
        url, text = _shown(place.base), str(error)
        # Other errors of this type are about the state of a connection, and the next connection has
        # another.
        unsayable = isinstance(error, httpx.LocalProtocolError) and "header value" in text
        if unsayable:
            text = "the token holds what a header must not"  # the exception contains the token
        log.debug("%s: %s: %s", url, type(error).__name__, text)
        why = f"{url}: {type(error).__name__}: {text}" if text else f"{url}: {type(error).__name__}"
        # Another coordinator may have a trusted certificate.
        untrusted = len(self) == 1 and _is_untrusted(error)
        if untrusted or unsayable or isinstance(error, _NEVER):
            raise BadCall(why, status=0) from None
        trouble = self._local.trouble if self._local else ""
        return NoReply(f"{why}; {trouble}" if trouble else why)


def _base(named: str) -> str:
    """Returns the URL of the API of the named coordinator. ``http://`` is assumed."""
    url = named if "://" in named else f"http://{named}"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a coordinator's URL begins with http:// or https://: {named!r}")
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL as error:
        raise ValueError(f"{error}: {named!r}") from error
    # "http:/a" would be the host "http".
    if not host or (url != named and host in ("http", "https")):
        raise ValueError(f"a coordinator's URL is http://HOST:PORT: {named!r}")
    return f"{url.rstrip('/')}/api/v1"


_NEVER = (httpx.InvalidURL, httpx.UnsupportedProtocol)
"""Errors of this side, independent of the coordinator."""


def _is_untrusted(error: BaseException) -> bool:
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in chain_of(error))


@lru_cache(maxsize=64)  # for every reply
def _shown(base: str) -> str:
    """Returns the URL without user and password."""
    return str(httpx.URL(base).copy_with(userinfo=b""))


def _is_of_stranger(reply: Reply) -> bool:
    """Returns whether another program has the port of a local coordinator that has ended."""
    return reply.status == 401 or (reply.status >= 300 and not reply.is_problem)


def _is_leaving(reply: Reply | NoReply) -> bool:
    if isinstance(reply, NoReply) or reply.status in AWAY:
        return True
    said = reply.body if isinstance(reply.body, dict) else {}
    items = said.get("acquire") or said.get("items") or []
    return any(isinstance(item, dict) and item.get("code") == CLOSING for item in items)


def settings(token: str | None, places: Places) -> dict[str, Any]:
    """Returns the settings for both httpx clients. The token defaults to ``POLITELY_TOKEN``."""
    token = token or os.environ.get("POLITELY_TOKEN")
    return {
        "headers": {"authorization": f"Bearer {token}"} if token else {},
        # The environment's proxy is for pages.
        "trust_env": False,
        # The machine's authorities, or the file in SSL_CERT_FILE: a coordinator's certificate is
        # seldom from a public authority.
        "verify": ssl.create_default_context() if places.have_tls else _without_authorities(),
        # Every waiting worker holds one call open. The coordinator limits their number, not the
        # pool.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=64),
    }


def _without_authorities() -> ssl.SSLContext:
    """Returns a context that trusts nothing. Reading all authorities takes 30 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


NDJSON = "application/x-ndjson"
"""The type of a body with one JSON object per line."""


def encoded(body: Any) -> bytes:
    """Returns JSON. Half a surrogate pair, as in a broken link, becomes U+FFFD as in a browser."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def request_of(call: Call, base: str, token: str | None = None) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request: dict[str, Any] = {
        "method": call.method,
        "url": f"{base}/{call.path}",
        "timeout": httpx.Timeout(call.timeout, connect=CONNECT_TAKES_MAX),
        "headers": headers,
    }
    if call.lines is not None:
        request["content"] = b"".join(encoded(line) + b"\n" for line in call.lines)
        headers["content-type"] = NDJSON
    elif call.method != "GET":
        request["content"] = encoded(call.body)
        headers["content-type"] = "application/json"
    return request


PROBLEM = "application/problem+json"
"""The type of every error of a coordinator."""


def reply_of(response: httpx.Response, base: str) -> Reply | NoReply:
    """Returns the reply, or `NoReply` for an invalid answer such as half a page of a proxy."""
    kind = response.headers.get("content-type", "")
    try:
        if kind == NDJSON:
            body = [json.loads(line) for line in response.text.splitlines()]
        else:
            body = response.json()
    except ValueError:
        if response.is_success:
            status = f"status {response.status_code} without JSON"
            return NoReply(f"{_shown(base)}: {status}; is it a coordinator?")
        body = None
    seconds = response.headers.get("retry-after", "")
    retry_after = float(seconds) if seconds.isascii() and seconds.isdigit() else None
    return Reply(
        response.status_code, body, retry_after, _shown(base), is_problem=kind.startswith(PROBLEM)
    )
