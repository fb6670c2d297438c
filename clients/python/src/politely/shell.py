"""What the two shells share that is about HTTP: settings, requests, replies."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import httpx

from politely.bodies import Outcome
from politely.errors import BadCall
from politely.flow import AWAY, CLOSING, Call, NoReply, Reply, Talk
from politely.outcome import chain_of, of_response

log = logging.getLogger("politely")

DEFAULT_URL = "http://127.0.0.1:7077"
CONNECT_TAKES_MAX = 5.0


def talk(client: str | None) -> Talk:
    return Talk(client or f"{socket.gethostname()}-{os.getpid()}"[:128], time.monotonic)


class Places:
    """Coordinators that share their keys: the first is called, and when it has no answer, or is ending, the next."""

    def __init__(self, urls: str | Iterable[str]) -> None:
        named = urls.split(",") if isinstance(urls, str) else urls
        self._bases = [_base(url.strip()) for url in named]
        if not self._bases:
            raise ValueError("no coordinator is named")
        self._current = 0

    def current(self) -> tuple[int, str]:
        """Which to call, and where that is."""
        current = self._current
        return current, self._bases[current]

    def heard(self, place: int, reply: Reply | NoReply) -> Reply | NoReply:
        """What the one at ``place`` answered. If it will not do what is asked, the next is called from now on."""
        if len(self._bases) == 1 or not _is_leaving(reply):
            return reply
        if self._current == place:  # of several calls that failed together only one moves on
            self._current = (place + 1) % len(self._bases)
        # When to come again concerns the one that said so.
        return reply if isinstance(reply, NoReply) else replace(reply, retry_after=None)

    def missed(self, place: int, error: httpx.TransportError | httpx.InvalidURL) -> NoReply:
        """The call did not get through. Raises `BadCall` if it never will."""
        url, text = _shown(self._bases[place]), str(error)
        # Other such errors are of a connection's state, and the next connection has another.
        unsayable = isinstance(error, httpx.LocalProtocolError) and "header value" in text
        if unsayable:
            text = "the token holds what a header must not"  # the exception says the token itself
        log.debug("%s: %s: %s", url, type(error).__name__, text)
        why = f"{url}: {type(error).__name__}: {text}" if text else f"{url}: {type(error).__name__}"
        # Of several coordinators another may have a certificate that is good.
        untrusted = len(self._bases) == 1 and _is_untrusted(error)
        if untrusted or unsayable or isinstance(error, _NEVER):
            raise BadCall(why, status=0) from None
        return NoReply(why)


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a coordinator's URL begins with http:// or https://: {url!r}")
    try:
        if not httpx.URL(url).host:
            raise ValueError(f"a coordinator's URL names a host: {url!r}")
    except httpx.InvalidURL as error:
        raise ValueError(f"{error}: {url!r}") from error
    return f"{url.rstrip('/')}/api/v1"


_NEVER = (httpx.InvalidURL, httpx.UnsupportedProtocol)
"""What we say is wrong, whoever answers."""


def _is_untrusted(error: BaseException) -> bool:
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in chain_of(error))


def _shown(base: str) -> str:
    """Without a user and a password."""
    return str(httpx.URL(base).copy_with(userinfo=b""))


def _is_leaving(reply: Reply | NoReply) -> bool:
    if isinstance(reply, NoReply) or reply.status in AWAY:
        return True
    said = reply.body if isinstance(reply.body, dict) else {}
    items = said.get("acquire") or said.get("items") or []
    return any(isinstance(item, dict) and item.get("code") == CLOSING for item in items)


def settings(token: str | None) -> dict[str, Any]:
    """For either httpx client. The token defaults to the environment's ``POLITELY_TOKEN``."""
    token = token or os.environ.get("POLITELY_TOKEN")
    return {
        "headers": {"authorization": f"Bearer {token}"} if token else {},
        # The proxy of the environment is for pages.
        "trust_env": False,
        # What this machine trusts, or the file that SSL_CERT_FILE names: coordinators seldom have certificates for the world.
        "verify": ssl.create_default_context(),
        # Every waiting worker holds one call open; the coordinator bounds them, not the pool.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=64),
    }


def request_of(call: Call, base: str) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": f"{base}/{call.path}",
        "json": call.body,
        "timeout": httpx.Timeout(call.timeout, connect=CONNECT_TAKES_MAX),
    }


def reply_of(response: httpx.Response, base: str) -> Reply | NoReply:
    """`NoReply` for an answer that is none: half a page of a proxy, say."""
    try:
        body = response.json()
    except ValueError:
        if response.is_success:
            return NoReply(f"{_shown(base)}: status {response.status_code} without JSON")
        body = None
    seconds = response.headers.get("retry-after", "")
    retry_after = float(seconds) if seconds.isascii() and seconds.isdigit() else None
    return Reply(response.status_code, body, retry_after)


def outcome_of(
    response: Any | None, outcome: Outcome | None, told: dict[str, Any]
) -> Outcome:
    """From one of three ways to say it, `told` refining the first."""
    if outcome is not None:
        return outcome
    if response is not None:
        return Outcome(**{**of_response(response).__dict__, **told})
    return Outcome(**told)
