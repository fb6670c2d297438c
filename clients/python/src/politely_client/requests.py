"""An adapter for requests that paces, reports and retries every request without further code.

>>> import requests
>>> from politely_client import Client
>>> from politely_client.requests import PoliteAdapter
>>> with Client() as client, requests.Session() as session:
...     session.mount("http://", PoliteAdapter(client))
...     session.mount("https://", PoliteAdapter(client))
...     session.get(url).status_code
200

The lease is renewed while the answer comes and while its body is read. A request without a time-out
has that of one lease. With ``stream=True`` the slot is taken until the response is closed, unless a
rule of the coordinator reads the body. Reads of ``response.raw`` must end within the lease. A
request whose body is a stream or generator is sent once. A redirect's Retry-After delays the
request for its target. A 206 that was not requested raises `requests.RequestException`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeAlias
from weakref import finalize

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Timeout

from politely_client.attempts import Attempts
from politely_client.bodies import Next
from politely_client.coordinator import Client, Permit
from politely_client.errors import PolitelyError
from politely_client.outcome import is_read_whole
from politely_client.targets import Targets, partial
from politely_client.units import BODY_USED_MAX, Used, asked_for, settle

log = logging.getLogger("politely_client")

Seconds: TypeAlias = "None | float | tuple[float, float] | tuple[float, None] | Timeout"


class PoliteAdapter(HTTPAdapter):
    """An adapter that acquires a permit before every attempt. ``asked`` as in
    `Client.acquire`.

    ``cost`` may be a callable that estimates the cost of a ``requests.PreparedRequest``. ``used``
    is a callable that reads the amounts that a request used from the bytes of its body, such as
    `politely_client.usage.openai`. A body of ``stream=True`` counts as estimated.
    """

    def __init__(
        self, coordinator: Client, *, used: Used | None = None, **asked: Any
    ) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._used = used
        self._asked = asked
        self._targets = Targets()

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Seconds = None,
        verify: bool | str = True,
        cert: None | bytes | str | tuple[bytes | str, bytes | str] = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        attempts = Attempts(request.method or "GET")
        asked = asked_for(self._asked, request, attempts.method)
        if rest := self._targets.rest(request.url or ""):
            time.sleep(rest)
        while True:
            permit = self._coordinator.acquire(
                request.url, retry=attempts.number > 1, **asked
            )
            permit.attempts = attempts
            came: requests.Response | Exception
            try:
                bounded: Any = _bounded(timeout, permit.lease_left)
                sent = time.monotonic()
                permit.keep()
                came = super().send(request, stream, bounded, verify, cert, proxies)
                latency = time.monotonic() - sent  # requests measures it after this method returns
                body = _Came(permit, self._used)
                if part := _partial(request, came):
                    _tell(permit, came, latency, body)
                    came.close()
                    raise requests.RequestException(part, request=request, response=came)
                _keep_while_read(came, permit, body)
                send_bodies = permit.state.grant.send_bodies
                if not stream or is_read_whole(came.status_code, send_bodies):
                    came.content  # noqa: B018: reads it
                    body.settle()
                next = _tell(permit, came, latency, body)
                if next is not None:
                    location = came.headers.get("location")
                    self._targets.delay(request.url or "", location, next.target_after)
            except Exception as error:
                came = error
                _tell(permit, error)
            except BaseException as error:
                _tell(permit, error)
                raise
            finally:
                permit._let_go()
            repeatable = request.body is None or isinstance(request.body, (bytes, str))
            pause = attempts.pause() if repeatable else None
            if pause is None:
                if isinstance(came, Exception):
                    raise came
                return came
            time.sleep(pause)

    def __getstate__(self) -> NoReturn:
        raise TypeError("a PoliteAdapter cannot be pickled: mount one of its own in each process")


class _Came:
    """What came of a body, from which the amounts that the request used are read."""

    def __init__(self, permit: Permit, used: Used | None) -> None:
        self._permit, self._used = permit, used
        self._chunks: list[bytes] = []
        self._bytes = 0

    def keep(self, chunk: Any) -> None:
        if self._used is not None:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            self._bytes += len(data)
            if self._bytes <= BODY_USED_MAX:
                self._chunks.append(data)

    def settle(self) -> None:
        """Sets the amounts that the request used."""
        if self._bytes <= BODY_USED_MAX:
            settle(self._permit, self._used, lambda: b"".join(self._chunks))


def _bounded(timeout: Seconds, lease_left: float) -> tuple[float, float] | Timeout:
    """Returns the time-outs in seconds. One that is missing is the length of the lease."""
    if isinstance(timeout, Timeout):
        bounded = timeout.clone()
        if not isinstance(timeout.total, (int, float)) and timeout.read_timeout is None:
            bounded.total = lease_left
        return bounded
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return (
        lease_left if connect is None else connect,
        lease_left if read is None else read,
    )


def _partial(request: requests.PreparedRequest, response: requests.Response) -> str | None:
    content_range = response.headers.get("content-range")
    return partial(response.status_code, content_range, "range" in request.headers)


def _keep_while_read(response: requests.Response, permit: Permit, body: _Came) -> None:
    """Keeps what comes of the body, and renews the lease in a thread while the body is read.

    A read waits for all bytes of its chunk, however slowly they come.
    """
    read = response.iter_content  # `content` and `iter_lines` use it too

    def kept(chunks: Iterator[Any]) -> Iterator[Any]:
        permit.keep()
        try:
            for chunk in chunks:
                body.keep(chunk)
                yield chunk
                if permit.lost:
                    raise requests.ReadTimeout(f"{permit.key}: the lease is over", response=response)
        finally:
            permit._let_go()

    def read_kept(*args: Any, **more: Any) -> Iterator[Any]:
        chunks = read(*args, **more)
        return chunks if permit.state.over else kept(chunks)

    response.iter_content = read_kept  # type: ignore[method-assign]


def _tell(
    permit: Permit,
    came: requests.Response | BaseException,
    latency: float | None = None,
    body: _Came | None = None,
) -> Next | None:
    """Reports the outcome. Returns the answer, or ``None`` if there is none."""
    if permit.state.over:
        return None
    try:
        if isinstance(came, BaseException):
            return permit.failed(came)
        if came._content_consumed:  # type: ignore[attr-defined]
            return permit.report(came, latency=latency)
        next = permit.report(came, latency=latency, body_coming=True)
        if body is not None:
            _at_close(came, permit, latency, body)
        return next
    except PolitelyError as why:  # a failed report must not lose the page
        log.warning("%s: not reported: %s", permit.key, why)
        return None


def _at_close(
    response: requests.Response, permit: Permit, latency: float | None, body: _Came
) -> None:
    close = response.close

    def close_and_tell() -> None:
        close()
        if not permit.state.over:
            body.settle()
            try:
                permit.report(response, latency=latency)
            except PolitelyError as why:
                log.warning("%s: not reported: %s", permit.key, why)

    response.close = close_and_tell  # type: ignore[method-assign]
    finalize(response, _dropped, permit, response.status_code, latency, response.raw, body)


def _dropped(
    permit: Permit, status: int, latency: float | None, raw: Any, body: _Came
) -> None:
    """Closes and reports a response that was collected without being closed."""
    if permit.state.over:
        return

    def close() -> None:
        with contextlib.suppress(Exception):
            raw.close()
        body.settle()
        try:
            permit.report(status=status, latency=latency)
        except PolitelyError as why:
            log.warning("%s: not reported: %s", permit.key, why)

    try:
        # The garbage collector must not wait for an answer.
        threading.Thread(target=close, daemon=True).start()
    except RuntimeError:  # the interpreter is ending
        close()
