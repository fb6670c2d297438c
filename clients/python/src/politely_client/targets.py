"""Redirects that name a wait, and responses that are a part of a page."""

from __future__ import annotations

import re
import threading
import time
from urllib.parse import urljoin

import httpx

TARGETS_MAX = 1024
"""Another target replaces the one that waits least."""


class Targets:
    """The targets of redirects that named a wait.

    The Retry-After of a redirect is the minimum time before its target is requested (RFC 9110,
    section 10.2.3). The client follows the redirect, with a request of its own that waits.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def delay(self, url: str, location: str | None, after: float) -> None:
        """Delays the target of the redirect from `url` to `location`."""
        target = _plain(urljoin(url, location)) if location and after > 0 else None
        if target is None:
            return
        with self._lock:
            if len(self._until) >= TARGETS_MAX:
                del self._until[min(self._until, key=lambda target: self._until[target])]
            self._until[target] = time.monotonic() + after

    def rest(self, url: str) -> float:
        """Returns the seconds that a request for `url` waits."""
        target = _plain(url) if self._until else None
        if target is None:
            return 0.0
        with self._lock:
            rest = self._until.get(target, 0.0) - time.monotonic()
            if rest <= 0:
                self._until.pop(target, None)
        return max(0.0, rest)


def _plain(url: str) -> str | None:
    """Returns the URL in one spelling, without its fragment."""
    try:
        return str(httpx.URL(url).copy_with(fragment=None))
    except httpx.InvalidURL:
        return None


_RANGE = re.compile(r"bytes 0-(\d{1,18})/(\d{1,18})", re.IGNORECASE)


def partial(status: int, content_range: str | None, was_requested: bool) -> str | None:
    """Returns the error of a 206 that was not requested. A part that is the whole is a page."""
    if status != 206 or was_requested:
        return None
    whole = _RANGE.fullmatch((content_range or "").strip())
    if whole and int(whole[1]) + 1 == int(whole[2]):
        return None
    return (
        f"partial content ({(content_range or '')[:60]}) that was not requested;"
        " the page is not complete"
    )
