"""An adapter for requests: every request of a session is paced, reported and retried, with no further code.

>>> session = requests.Session()                                                 # doctest: +SKIP
>>> adapter = PoliteAdapter(Coordinator())                                       # doctest: +SKIP
>>> session.mount("http://", adapter), session.mount("https://", adapter)        # doctest: +SKIP

Bodies are read within their leases; with ``stream=True`` the slot is taken until the response is closed. A body that is a
stream or generator is sent once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from politely.attempts import Attempts
from politely.coordinator import Coordinator, Permit
from politely.errors import PolitelyError

log = logging.getLogger("politely")


class PoliteAdapter(HTTPAdapter):
    """Asks ``coordinator`` before every attempt. ``asked`` as in `Coordinator.acquire`."""

    def __init__(self, coordinator: Coordinator, **asked: Any) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._asked = asked

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: None | float | tuple[float, float] | tuple[float, None] = None,
        verify: bool | str = True,
        cert: None | bytes | str | tuple[bytes | str, bytes | str] = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        attempts = Attempts(request.method or "GET")
        while True:
            permit = self._coordinator.acquire(
                request.url, retry=attempts.number > 1, **self._asked
            )
            permit.attempts = attempts
            came: requests.Response | Exception
            try:
                came = super().send(
                    request, stream, _bounded(timeout, permit.lease_left), verify, cert, proxies
                )
                if not stream or came.status_code >= 400:
                    came.content  # noqa: B018: reads it
                _tell(permit, came)
            except Exception as error:
                came = error
                _tell(permit, error)
            except BaseException as error:
                _tell(permit, error)
                raise
            repeatable = request.body is None or isinstance(request.body, (bytes, str))
            pause = attempts.pause() if repeatable else None
            if pause is None:
                if isinstance(came, Exception):
                    raise came
                return came
            time.sleep(pause)


def _bounded(
    timeout: None | float | tuple[float, float] | tuple[float, None], lease_left: float
) -> tuple[float, float]:
    """No time-out is longer than the lease."""
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return (
        lease_left if connect is None else min(connect, lease_left),
        lease_left if read is None else min(read, lease_left),
    )


def _tell(permit: Permit, came: requests.Response | BaseException) -> None:
    if permit.state.over:
        return
    try:
        if isinstance(came, BaseException):
            permit.failed(came)
        elif came._content_consumed:  # type: ignore[attr-defined]
            permit.report(came)
        else:
            permit.report(came, body_coming=True)
            _at_close(came, permit)
    except PolitelyError as why:  # a page that came is not lost for it
        log.warning("%s: not reported: %s", permit.key, why)


def _at_close(response: requests.Response, permit: Permit) -> None:
    close = response.close

    def close_and_tell() -> None:
        close()
        if not permit.state.over:
            try:
                permit.report(response)
            except PolitelyError as why:
                log.warning("%s: not reported: %s", permit.key, why)

    response.close = close_and_tell  # type: ignore[method-assign]
