"""Classifies responses and exceptions of httpx, requests, urllib3, Twisted and Scrapy.

They are told apart by their attributes and by the names of their classes, so none of these packages
must be installed.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from politely_client.bodies import ErrorKind, Outcome, SendBodies

BODY_START_MAX = 16 * 1024
"""The number of bytes that the coordinator reads of a body."""


def is_read_whole(status: int, asked: SendBodies) -> bool:
    """Returns whether a body decides what becomes of its request, so that it is read first."""
    return status >= 400 or asked == "all"


def body_matters(status: int, asked: SendBodies) -> bool:
    """Returns whether a body with this status is evidence.

    Error pages may be block pages or state a limit in words. The text of a missing page says
    nothing, unless a rule of the coordinator reads it.
    """
    return asked == "all" or (status >= 400 and status not in (404, 410))


def evidence(
    status: int, headers: Mapping[str, str], body: bytes | None, asked: SendBodies
) -> dict[str, Any]:
    """Returns the fields of a report about a response. ``body`` is ``None`` if it was not read."""
    body_start = None
    if body is not None and (body or asked) and body_matters(status, asked):
        body_start = body[:BODY_START_MAX].decode("utf-8", "replace")
    return {
        "status": status,
        "headers": headers_that_matter(headers, asked),
        "body_start": body_start,
    }


_HEADERS = frozenset(
    {
        "age",
        "cf-mitigated",
        "content-type",
        "date",
        "retry-after",
        "retry-after-ms",
        "server",
        "via",
        "x-amzn-waf-action",
        "x-ms-retry-after-ms",
        "x-shopify-shop-api-call-limit",
        "x-should-retry",
    }
)
_HEADER_PARTS = ("ratelimit", "rate-limit", "x-app-limit", "x-user-limit")


def headers_that_matter(headers: Mapping[str, str], asked: SendBodies = None) -> dict[str, str]:
    """Returns the headers about limits and block pages, or all for rules of the coordinator, and
    never cookies.
    """
    lower = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in lower
        if name in _HEADERS
        or any(part in name for part in _HEADER_PARTS)
        or (asked and name != "set-cookie")
    }


def of_response(response: Any, asked: SendBodies = None) -> Outcome:
    """Returns the outcome of an ``httpx.Response`` or a ``requests.Response``.

    A body that was not read is not read here either.
    """
    body = _body_if_read(response)
    request = getattr(response, "request", None) if _has_request(response) else None
    return Outcome(
        **evidence(response.status_code, response.headers, body, asked),
        latency=_elapsed(response),
        bytes=getattr(response, "num_bytes_downloaded", 0) or len(body or b""),
        method=getattr(request, "method", None) or "GET",
        resource=url_of(request),
    )


def url_of(request: Any) -> str | None:
    """Returns the URL of a request of httpx or requests."""
    url = getattr(request, "url", None)
    return str(url) if url else None


def url_of_failed(error: BaseException) -> str | None:
    """Returns the URL of the request that ended with `error`, if the error knows it."""
    try:
        return url_of(getattr(error, "request", None))
    except RuntimeError:  # an httpx error without a request
        return None


def _has_request(response: Any) -> bool:
    # The attribute of an httpx response without a request raises an error.
    return getattr(response, "_request", response) is not None


def _body_if_read(response: Any) -> bytes | None:
    """Returns the body if it was read.

    httpx sets ``_content`` when it has read the body. In requests it is ``False`` until then.
    """
    content = getattr(response, "_content", None)
    return content if isinstance(content, bytes) else None


def _elapsed(response: Any) -> float | None:
    try:
        return float(response.elapsed.total_seconds())
    except (AttributeError, RuntimeError):  # httpx raises it before the response is closed
        return None


_TIMEOUTS = {
    "ConnectTimeout",
    "ReadTimeout",
    "WriteTimeout",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "DownloadTimeoutError",
    "TCPTimedOutError",
    "TimeoutError",
    "Timeout",
}
_RESOLVER = {"CannotResolveHostError", "DNSLookupError", "NameResolutionError"}
_TLS = {"SSLError", "VerificationError", "CertificateError"}
_RESET = {
    "ConnectionLost",
    "ConnectionDone",
    "ConnectionResetError",
    "ConnectionAbortedError",
    "BrokenPipeError",
    "IncompleteRead",
    "ChunkedEncodingError",
    "RemoteDisconnected",
    "ReadError",
    "WriteError",
    "CloseError",
    "ResponseDataLossError",
    "DownloadFailedError",
    "ClientOSError",
    "ClientPayloadError",
}
_CONNECT = {
    "ConnectionRefusedError",
    "ConnectError",
    "ConnectionError",
    "NewConnectionError",
    "DownloadConnectionRefusedError",
    "NoRouteError",
    "ClientConnectorError",
}
_MALFORMED = {
    "RemoteProtocolError",
    "DecodingError",
    "ContentDecodingError",
    "DecodeError",
    "BadStatusLine",
    "ParseError",
    "BadHttpMessage",
    "ClientResponseError",
}
_NOT_THE_HOST = {"PoolTimeout", "LocalProtocolError", "InvalidURL", "UnsupportedProtocol"}
"""Errors of this side."""

_KINDS: tuple[tuple[ErrorKind, set[str]], ...] = (
    # The most specific kind comes first: a failed lookup is a failed connection too.
    ("tls", _TLS),
    ("resolver", _RESOLVER),
    ("timeout", _TIMEOUTS),
    ("malformed", _MALFORMED),
    ("reset", _RESET),
    ("connect", _CONNECT),
)
_NAMES_NOBODY = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def error_kind(error: BaseException) -> ErrorKind | None:
    """Returns why no response came, or ``None`` if this is not evidence about the host."""
    chain = list(chain_of(error))
    if type(error).__name__ in _NOT_THE_HOST:
        return None
    for each in chain:
        if isinstance(each, socket.gaierror):
            return "no_such_host" if each.errno in _NAMES_NOBODY else "resolver"
        if isinstance(each, ssl.SSLError):
            return "tls"
        if type(each).__module__.startswith("OpenSSL"):
            return "tls"
    # If the system's own error was not kept, its number is in the text.
    text = " ".join(str(each) for each in chain)
    if "[Errno -2]" in text or "[Errno -5]" in text:
        return "no_such_host"
    if "Server disconnected" in text or "peer closed connection" in text:
        return "reset"
    found = {_by_name(each) for each in chain}
    return next((kind for kind, _ in _KINDS if kind in found), None)


def _by_name(error: BaseException) -> ErrorKind | None:
    """Returns the kind of the most derived known class, since urllib3's failed connections are
    time-outs.
    """
    for cls in type(error).__mro__:
        for kind, names in _KINDS:
            if cls.__name__ in names:
                return kind
    return None


def chain_of(error: BaseException, seen: set[int] | None = None) -> Iterator[BaseException]:
    """Yields the error and its causes. The number is limited, since causes may form a cycle."""
    seen = set() if seen is None else seen
    if id(error) in seen or len(seen) >= 20:
        return
    seen.add(id(error))
    yield error
    reasons = getattr(error, "reasons", None)  # Twisted has a list of failures
    within = [error.__cause__, error.__context__, getattr(error, "reason", None), *error.args]
    within += [getattr(each, "value", None) for each in reasons or ()]
    for each in within:
        if isinstance(each, BaseException):
            yield from chain_of(each, seen)


def outcome_of(
    response: Any | None, outcome: Outcome | None, told: dict[str, Any], asked: SendBodies
) -> Outcome:
    """Returns the given outcome, or that of the response with the fields of `told`."""
    if outcome is not None:
        return outcome
    if response is not None:
        return Outcome(**{**of_response(response, asked).__dict__, **told})
    return Outcome(**told)
