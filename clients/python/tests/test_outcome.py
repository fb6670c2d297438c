"""Tests the classification of responses and exceptions."""

import socket
import ssl

import httpx
import pytest
import requests
import urllib3
from scrapy import exceptions as scrapy

from politely_client.outcome import error_kind, of_response


def test_an_httpx_response():
    request = httpx.Request("HEAD", "http://a.example/")
    outcome = of_response(httpx.Response(403, text="x" * 20_000, request=request))
    assert (outcome.status, outcome.method) == (403, "HEAD")
    assert outcome.body_start == "x" * 16_384
    assert of_response(httpx.Response(200, text="page")).body_start is None


def test_a_body_that_was_not_read_is_not_touched():
    def body():
        raise AssertionError("read")
        yield b""

    assert of_response(httpx.Response(429, content=body())).body_start is None


def test_rules_of_the_coordinator_get_more_of_a_response():
    headers = {"x-soft": "1", "set-cookie": "secret=1"}
    page = httpx.Response(200, text="page", headers=headers)
    for asked, start, soft in [(None, None, None), ("errors", None, "1"), ("all", "page", "1")]:
        outcome = of_response(page, asked)
        assert (outcome.body_start, outcome.headers.get("x-soft")) == (start, soft)
        assert "set-cookie" not in outcome.headers
    assert of_response(httpx.Response(404), "all").body_start == ""
    assert of_response(httpx.Response(200, content=iter([b"x"])), "all").body_start is None


def test_a_requests_response():
    response = requests.Response()
    response.status_code, response._content = 503, b"busy"
    response.headers["Retry-After"] = "1"
    response.request = requests.Request("PUT", "http://a.example/").prepare()
    outcome = of_response(response)
    assert (outcome.status, outcome.method, outcome.body_start) == (503, "PUT", "busy")
    assert outcome.headers == {"retry-after": "1"} and outcome.latency == 0.0


def because(error, cause):
    try:
        raise error from cause
    except type(error) as raised:
        return raised


NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NOT_NOW = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
POOL = urllib3.HTTPConnectionPool("a.example")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectTimeout(""), "timeout"),
        (httpx.ReadTimeout(""), "timeout"),
        (httpx.PoolTimeout(""), None),
        (httpx.ConnectError("[Errno 111] Connection refused"), "connect"),
        (because(httpx.ConnectError(""), NO_NAME), "no_such_host"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "no_such_host"),
        (because(httpx.ConnectError(""), NOT_NOW), "resolver"),
        (because(httpx.ConnectError(""), ssl.SSLError("bad")), "tls"),
        (httpx.ReadError(""), "reset"),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), "reset"),
        (httpx.RemoteProtocolError("illegal status line"), "malformed"),
        (httpx.DecodingError(""), "malformed"),
        (httpx.TooManyRedirects(""), None),
        (httpx.UnsupportedProtocol(""), None),
        (requests.ConnectTimeout(), "timeout"),
        (requests.ReadTimeout(), "timeout"),
        (requests.exceptions.SSLError(), "tls"),
        (requests.exceptions.ChunkedEncodingError(), "reset"),
        (requests.exceptions.ContentDecodingError(), "malformed"),
        (requests.TooManyRedirects(), None),
        (
            requests.ConnectionError(
                urllib3.exceptions.MaxRetryError(
                    POOL, "/", urllib3.exceptions.NameResolutionError("a", POOL, NO_NAME)
                )
            ),
            "no_such_host",
        ),
        (
            requests.ConnectionError(
                urllib3.exceptions.ProtocolError("aborted", ConnectionResetError())
            ),
            "reset",
        ),
        (
            requests.ConnectionError(urllib3.exceptions.NewConnectionError(POOL, "refused")),
            "connect",
        ),
        (TimeoutError(), "timeout"),
        (scrapy.DownloadTimeoutError(), "timeout"),
        (scrapy.DownloadConnectionRefusedError(), "connect"),
        (scrapy.CannotResolveHostError(), "resolver"),
        (scrapy.ResponseDataLossError(), "reset"),
        (scrapy.DownloadFailedError(), "reset"),
        (ValueError("ours"), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_errors(error, kind):
    assert error_kind(error) == kind


def test_an_error_that_goes_in_circles_ends():
    error, other = ValueError(), ValueError()
    error.__cause__, other.__cause__ = other, error
    assert error_kind(error) is None
