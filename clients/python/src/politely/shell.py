"""What the two shells share that is about HTTP: settings, requests, replies."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import httpx

from politely.bodies import Outcome
from politely.flow import AWAY, CLOSING, Call, Reply, Talk
from politely.outcome import of_response

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

    def heard(self, place: int, reply: Reply | None) -> Reply | None:
        """What the one at ``place`` answered. If it will not do what is asked, the next is called from now on."""
        if len(self._bases) == 1 or not _is_leaving(reply):
            return reply
        if self._current == place:  # of several calls that failed together only one moves on
            self._current = (place + 1) % len(self._bases)
        # When to come again concerns the one that said so.
        return reply and replace(reply, retry_after=None)


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a coordinator's URL begins with http:// or https://: {url!r}")
    return f"{url.rstrip('/')}/api/v1"


def _is_leaving(reply: Reply | None) -> bool:
    if reply is None or reply.status in AWAY:
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


def reply_of(response: httpx.Response) -> Reply | None:
    """`None` for an answer that is none: half a page of a proxy, say."""
    try:
        body = response.json()
    except ValueError:
        if response.is_success:
            return None
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
