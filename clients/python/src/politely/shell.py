"""What the two shells share that is about HTTP: settings, requests, replies."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import httpx

from politely.bodies import Outcome
from politely.flow import Call, Reply, Talk
from politely.outcome import of_response

DEFAULT_URL = "http://127.0.0.1:7077"
CONNECT_TAKES_MAX = 5.0


def talk(client: str | None) -> Talk:
    return Talk(client or f"{socket.gethostname()}-{os.getpid()}"[:128], time.monotonic)


def settings(url: str, token: str | None) -> dict[str, Any]:
    """For either httpx client. The token defaults to the environment's ``POLITELY_TOKEN``."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a coordinator's URL begins with http:// or https://: {url!r}")
    token = token or os.environ.get("POLITELY_TOKEN")
    return {
        "base_url": f"{url.rstrip('/')}/api/v1",
        "headers": {"authorization": f"Bearer {token}"} if token else {},
        # The proxy of the environment is for pages.
        "trust_env": False,
        # Every waiting worker holds one call open; the coordinator bounds them, not the pool.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=64),
    }


def request_of(call: Call) -> dict[str, Any]:
    return {
        "url": f"/{call.path}",
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
