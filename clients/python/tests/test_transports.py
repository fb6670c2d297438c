"""Tests the httpx transports and the requests adapter over a fake coordinator."""

import asyncio
import contextlib
import gzip
import pickle
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests
import urllib3
from fake import RETRY, Fake, granted, told

from politely_client import AsyncClient, Client, TimedOut
from politely_client.httpx import AsyncPoliteTransport, PoliteTransport
from politely_client.requests import PoliteAdapter
from politely_client.targets import TARGETS_MAX, Targets, partial

URL = "http://a.example/x"
GIVE_UP = {"give_up": {"reason": "status 403"}}


def answers(*nexts):
    return [(200, {"items": [told(f"p{i + 1}", next)]}) for i, next in enumerate(nexts)]


def client(fake, host, **asked):
    coordinator = Client("http://fake", client="w1", transport=httpx.MockTransport(fake))
    return httpx.Client(transport=PoliteTransport(coordinator, httpx.MockTransport(host), **asked))


def fetch(fake, host, method="GET", used=None, **request):
    """Fetches with the sync client and the asyncio client, which must do the same."""
    with client(fake, host, used=used) as http:
        return http.request(method, URL, **request)


def fetch_async(fake, host, method="GET", used=None, **request):
    async def main():
        mock = httpx.MockTransport(fake)
        async with AsyncClient("http://fake", client="w1", transport=mock) as coordinator:
            transport = AsyncPoliteTransport(coordinator, httpx.MockTransport(host), used=used)
            async with httpx.AsyncClient(transport=transport) as http:
                return await http.request(method, URL, **request)

    return asyncio.run(main())


both = pytest.mark.parametrize("fetch", [fetch, fetch_async])


class Host:
    def __init__(self, *said):
        self.said, self.requests = list(said), []

    def __call__(self, request):
        self.requests.append(request)
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


@both
def test_a_page_is_paced_and_reported(fetch):
    fake, host = Fake(), Host(httpx.Response(200, text="page", headers={"RateLimit": "r"}))
    response = fetch(fake, host)
    assert response.text == "page"
    assert [path for path, _ in fake.calls] == ["acquire", "report"]
    (report,) = fake.reports()
    assert (report["status"], report["bytes"], report["headers"]["ratelimit"]) == (200, 4, "r")


@both
def test_a_refused_request_is_sent_again(fetch):
    fake = Fake(report=answers(RETRY, RETRY, "done"))
    host = Host(httpx.Response(429, text="slow"), httpx.ReadError(""), httpx.Response(200))
    assert fetch(fake, host).status_code == 200
    first, second, third = fake.reports()
    assert first["body_start"] == "slow" and second["error"] == "reset"
    assert (third["attempt"], third["free"]) == (3, 2)


ODD = [None, {"tokens": None}, {"tokens": 1.5}, {"tokens": -1}, {"tokens": 2**53 + 1}, {"A b": 1}]
ODD += [{"a": 1, "b": 1, "c": 1, "d": 1}, 7]


@pytest.mark.parametrize("odd", ODD, ids=str)
@both
def test_an_odd_amount_of_a_reader_does_not_lose_the_report(fetch, odd):
    for status in (200, 429):
        fake = Fake(report=answers(GIVE_UP))
        answer = httpx.Response(status, text="{}", headers={"retry-after": "30"})
        assert fetch(fake, Host(answer), used=lambda body: odd).status_code == status
        (report,) = fake.reports()
        assert (report["status"], report.get("used")) == (status, None)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_amount_of_a_reader_does_not_lose_the_report_of_requests(server, odd):
    fake = Fake(report=answers(GIVE_UP))
    session, url = polite_session(fake, [429], server, used=lambda body: odd)
    with session:
        assert session.get(url).status_code == 429
    (report,) = fake.reports()
    assert (report["status"], report.get("used")) == (429, None)


SOFT = "Please slow down."


@both
def test_a_body_that_a_rule_reads_is_sent_and_a_soft_refusal_is_sent_again(fetch):
    grants = [(200, {"items": [granted(0, f"p{i}", send_bodies="all")]}) for i in (1, 2, 3)]
    fake = Fake(acquire=grants, report=answers(RETRY, "done"))
    zipped = gzip.compress(SOFT.encode())
    soft = httpx.Response(200, content=zipped, headers={"content-encoding": "gzip", "x-soft": "1"})
    host = Host(soft, httpx.Response(200, text="page"))
    assert fetch(fake, host).text == "page"
    first, second = fake.reports()
    assert (first["body_start"], first["headers"]["x-soft"]) == (SOFT, "1")
    assert second["body_start"] == "page"
    fetch(fake, Host(httpx.Response(204, headers={"set-cookie": "secret=1"})))
    last = fake.reports()[-1]
    assert last["body_start"] == "" and "set-cookie" not in last.get("headers", {})


@both
def test_the_last_answer_is_the_callers(fetch):
    fake = Fake(report=answers(GIVE_UP))
    page = gzip.compress(b"<title>Just a moment...</title>")
    host = Host(httpx.Response(403, content=page, headers={"Content-Encoding": "gzip"}))
    response = fetch(fake, host)
    assert response.status_code == 403 and "Just a moment" in response.text
    assert "Just a moment" in fake.reports()[0]["body_start"]


@both
def test_the_last_error_is_the_callers(fetch):
    fake = Fake(report=answers(GIVE_UP))
    with pytest.raises(httpx.ConnectError):
        fetch(fake, Host(httpx.ConnectError("refused")))
    assert fake.reports()[0]["error"] == "connect"


@both
def test_a_body_that_is_gone_is_not_sent_again(fetch):
    async def chunks():
        yield b"once"

    body = chunks() if fetch is fetch_async else iter([b"once"])
    fake = Fake(report=answers(RETRY))
    assert fetch(fake, Host(httpx.Response(429)), "POST", content=body).status_code == 429
    assert fake.reports()[0]["method"] == "POST"


@both
def test_a_body_that_is_kept_is_sent_again(fetch):
    fake, host = Fake(report=answers(RETRY)), Host(httpx.Response(429), httpx.Response(201))
    assert fetch(fake, host, "PUT", content=b"kept").status_code == 201
    assert [request.content for request in host.requests] == [b"kept", b"kept"]


@both
def test_a_missing_time_out_is_the_lease_and_a_given_one_may_be_longer(fetch):
    fake = Fake(acquire=[(200, {"items": [granted(lease_ms=2_000)]})])
    host = Host(httpx.Response(200))
    fetch(fake, host, timeout=httpx.Timeout(None, connect=600.0))
    timeouts = host.requests[0].extensions["timeout"]
    assert timeouts["connect"] == 600.0 and 1.0 < timeouts["read"] <= 2.0


class Slow(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A host whose answer comes once the lease was renewed three times."""

    def __init__(self, fake):
        self.fake = fake

    def handle_request(self, request):
        while len(self.fake.of("renew")) < 3:
            time.sleep(0.01)
        return httpx.Response(200, text="page")

    async def handle_async_request(self, request):
        while len(self.fake.of("renew")) < 3:
            await asyncio.sleep(0.01)
        return httpx.Response(200, text="page")


def slowly(fake):
    coordinator = Client("http://fake", client="w1", transport=httpx.MockTransport(fake))
    with httpx.Client(transport=PoliteTransport(coordinator, Slow(fake))) as http:
        return http.get(URL, timeout=600.0)


def slowly_async(fake):
    async def main():
        mock = httpx.MockTransport(fake)
        async with AsyncClient("http://fake", client="w1", transport=mock) as coordinator:
            transport = AsyncPoliteTransport(coordinator, Slow(fake))
            async with httpx.AsyncClient(transport=transport) as http:
                return await http.get(URL, timeout=600.0)

    return asyncio.run(main())


@pytest.mark.parametrize("get", [slowly, slowly_async])
def test_an_answer_that_takes_longer_than_the_lease_renews_it(get):
    fake = short_lease(1_000)
    assert get(fake).text == "page"
    assert fake.calls[-1][0] == "report" and fake.reports()[-1]["status"] == 200


class Silent(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that pauses until the lease was renewed three times."""

    def __init__(self, fake):
        self.fake = fake

    def __iter__(self):
        yield b"1"
        while len(self.fake.of("renew")) < 3:
            time.sleep(0.01)
        yield b"2"

    async def __aiter__(self):
        yield b"1"
        while len(self.fake.of("renew")) < 3:
            await asyncio.sleep(0.01)
        yield b"2"


@both
def test_a_body_that_is_silent_for_longer_than_the_lease_renews_it(fetch):
    fake = short_lease(1_000)
    assert fetch(fake, Host(httpx.Response(200, stream=Silent(fake)))).text == "12"
    assert fake.reports()[-1]["status"] == 200


def test_the_asyncio_transport_aborts_a_request_whose_lease_is_lost():
    fake = short_lease(1_000, times=0)
    with pytest.raises(httpx.ReadTimeout, match="lease"):
        slowly_async(fake)
    assert len(fake.of("renew")) == 1


@both
def test_a_long_body_renews_its_lease_and_ends_with_it(fetch):
    lost = {"renewed": [], "lost": ["p1"]}
    fake = Fake(acquire=[(200, {"items": [granted(lease_ms=0)]})], renew=[(200, lost)])

    class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self):
            yield b"1"
            yield b"2"

        async def __aiter__(self):
            yield b"1"
            yield b"2"

    with pytest.raises(httpx.ReadTimeout, match="lease"):
        fetch(fake, Host(httpx.Response(200, stream=Body())))
    assert fake.reports()[0]["error"] == "timeout"


def test_a_streamed_body_is_reported_when_it_is_closed():
    fake = Fake()
    with (
        client(fake, Host(httpx.Response(200, text="page"))) as http,
        http.stream("GET", URL) as response,
    ):
        assert response.status_code == 200 and fake.reports() == []
    assert fake.reports()[0]["status"] == 200


def test_the_wait_is_bounded_if_asked():
    waits = {"status": "wait", "item": 0, "retry_in_ms": 9_000, "reason": "pace", "position": 0}
    fake, host = Fake(acquire=[(200, {"items": [waits]})]), Host()
    with pytest.raises(TimedOut), client(fake, host, wait=1.0) as http:
        http.get(URL)
    assert host.requests == []


@both
@pytest.mark.parametrize("status", [200, 206])
def test_a_part_that_was_not_requested_is_no_page(fetch, status):
    def page():
        return Host(httpx.Response(status, text="page", headers={"Content-Range": "bytes 0-3/10"}))

    fake = Fake()
    if status == 200:
        assert fetch(fake, page()).text == "page"
    else:
        with pytest.raises(httpx.RemoteProtocolError, match=r"partial content \(bytes 0-3/10\)"):
            fetch(fake, page())
    assert [report["status"] for report in fake.reports()] == [status]
    assert fetch(Fake(), page(), headers={"Range": "bytes=0-3"}).text == "page"


def test_a_part_that_is_the_whole_is_a_page():
    ends = {"bytes 0-9/10": None, "BYTES 0-0/1": None, "bytes 1-9/10": "", "bytes 0-9/*": "", "": ""}
    for content_range, error in ends.items():
        assert (partial(206, content_range, False) is None) == (error is None), content_range
    assert partial(206, None, False) and not partial(206, None, True)


@pytest.mark.parametrize("client", ["httpx", "asyncio"])
def test_a_redirects_wait_delays_its_target(client, monkeypatch):
    slept = []
    moved = httpx.Response(302, headers={"Location": "/new#part"})
    fake = Fake(report=[(200, {"items": [told("p1", target_after_ms=7_000)]})])
    host = Host(moved, httpx.Response(200, text="new"), httpx.Response(200))
    coordinator = httpx.MockTransport(fake)
    if client == "httpx":
        monkeypatch.setattr("politely_client.httpx.time.sleep", slept.append)
        polite = PoliteTransport(Client("http://fake", transport=coordinator), httpx.MockTransport(host))
        with httpx.Client(transport=polite, follow_redirects=True) as http:
            assert http.get(URL).text == "new"
            http.get("http://a.example/other")
    else:

        async def sleep(seconds):
            slept.append(seconds)

        async def main():
            session = AsyncClient("http://fake", transport=coordinator)
            polite = AsyncPoliteTransport(session, httpx.MockTransport(host))
            async with session, httpx.AsyncClient(transport=polite, follow_redirects=True) as http:
                assert (await http.get(URL)).text == "new"
                await http.get("http://a.example/other")

        monkeypatch.setattr("politely_client.httpx.asyncio.sleep", sleep)
        asyncio.run(main())
    assert [round(pause) for pause in slept if pause > 1] == [7]


def test_few_targets_are_remembered():
    targets = Targets()
    targets.delay("http://a.example/", "/long", 900.0)
    for page in range(2 * TARGETS_MAX):
        targets.delay("http://a.example/", f"/{page}", 60.0)
    assert len(targets._until) == TARGETS_MAX
    assert 890 < targets.rest("http://A.example:80/long") <= 900
    assert targets.rest("http://a.example/other") == targets.rest("http://[") == 0.0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status = self.server.statuses.pop(0)
        if status is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        time.sleep(self.server.head_takes)
        self.send_response(status)
        self.send_header("Content-Length", "4")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has gone
            for byte in b"page":
                time.sleep(self.server.body_takes / 4)
                self.wfile.write(bytes([byte]))

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.head_takes = server.body_takes = 0.0
    server.headers = {}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def polite_session(fake, statuses, server, **asked):
    server.statuses = statuses
    coordinator = Client("http://fake", client="w1", transport=httpx.MockTransport(fake))
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", PoliteAdapter(coordinator, **asked))
    return session, f"http://127.0.0.1:{server.server_port}/x"


def test_requests_sends_again_and_reports(server):
    fake = Fake(report=answers(RETRY, RETRY))
    session, url = polite_session(fake, [429, None, 200], server)
    with session:
        assert session.get(url).text == "page"
    first, second, third = fake.reports()
    assert first["body_start"] == "page" and second["error"] == "reset"
    assert (third["status"], third["attempt"], third["bytes"]) == (200, 3, 4)


@pytest.mark.parametrize("stream", [False, True])
def test_requests_sends_a_body_that_a_rule_reads(server, stream):
    grants = [(200, {"items": [granted(0, f"p{i}", send_bodies="all")]}) for i in (1, 2)]
    fake = Fake(acquire=grants, report=answers(RETRY))
    session, url = polite_session(fake, [200, 200], server)
    with session:
        assert session.get(url, stream=stream).text == "page"
    assert [report["body_start"] for report in fake.reports()] == ["page", "page"]


def test_requests_raises_the_last_error(server):
    fake = Fake(report=answers(GIVE_UP))
    session, url = polite_session(fake, [None], server)
    with session, pytest.raises(requests.ConnectionError):
        session.get(url)


def test_requests_holds_the_slot_of_a_stream_until_it_is_closed(server):
    fake = Fake()
    session, url = polite_session(fake, [200], server)
    with session, session.get(url, stream=True) as response:
        assert fake.reports()[0]["body_coming"]
        assert response.content == b"page"
    assert len(fake.reports()) == 2 and "body_coming" not in fake.reports()[1]


def test_requests_reports_how_long_the_head_took(server):
    """requests sets its own time only after the adapter has returned."""
    fake = Fake()
    server.head_takes, server.body_takes = 0.1, 0.4
    session, url = polite_session(fake, [200, 200], server)
    with session:
        session.get(url)
        with session.get(url, stream=True) as response:
            assert response.content == b"page"
    assert len(fake.reports()) == 3
    assert all(100 <= report["latency_ms"] < 400 for report in fake.reports())


def short_lease(lease_ms, times=99):
    """Returns a coordinator with a short lease that is renewed ``times`` times."""
    kept = {"renewed": [{"permit": "p1", "lease_ms": lease_ms}], "lost": []}
    lost = {"renewed": [], "lost": ["p1"]}
    return Fake(
        acquire=[(200, {"items": [granted(lease_ms=lease_ms)]})],
        renew=[(200, kept)] * times + [(200, lost)],
    )


@pytest.mark.parametrize("stream", [False, True])
def test_requests_renews_the_lease_while_a_body_comes(server, stream):
    """Without a renewal the slot would go to another request of the same host."""
    fake = short_lease(500)
    server.body_takes = 1.5  # byte by byte, so one read waits for all of it
    session, url = polite_session(fake, [200], server)
    with session, session.get(url, stream=stream) as response:
        assert response.content == b"page"
    assert 2 <= len(fake.of("renew")) <= 9
    assert fake.calls[-1][0] == "report" and "body_coming" not in fake.reports()[-1]


def test_requests_aborts_a_body_whose_lease_is_lost(server):
    fake = short_lease(500, times=0)
    server.body_takes = 2.0
    session, url = polite_session(fake, [200], server)
    with (
        session,
        session.get(url, stream=True) as response,
        pytest.raises(requests.ReadTimeout, match="lease"),
    ):
        list(response.iter_content(1))


def test_requests_renews_no_lease_of_a_body_that_nobody_reads(server):
    fake = short_lease(500)
    session, url = polite_session(fake, [200], server)
    with session, session.get(url, stream=True) as response:
        next(response.iter_content(1))
        renewed = fake.of("renew")  # while the answer came
        time.sleep(0.6)
        assert fake.of("renew") == renewed


def test_requests_takes_time_outs_of_urllib3(server):
    """A urllib3 time-out raises no TypeError."""
    session, url = polite_session(short_lease(500), [200, 200, 200], server)
    with session:
        assert session.get(url, timeout=urllib3.Timeout(connect=5.0, read=5.0)).text == "page"
        server.head_takes = 1.5
        with pytest.raises(requests.ReadTimeout):
            session.get(url, timeout=urllib3.Timeout(total=0.1))
    session, url = polite_session(short_lease(500), [200], server)
    with session, pytest.raises(requests.ReadTimeout):
        session.get(url, timeout=urllib3.Timeout(None))  # a missing time-out is the lease


def test_requests_renews_the_lease_while_it_waits_for_the_answer(server):
    fake = short_lease(500)
    server.head_takes = 2.0
    session, url = polite_session(fake, [200], server)
    with session:
        assert session.get(url, timeout=60).text == "page"
    assert len(fake.of("renew")) >= 2 and fake.reports()[-1]["status"] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_requests_delays_the_target_of_a_redirect(server, stream, monkeypatch):
    slept, sleep = [], time.sleep
    monkeypatch.setattr("politely_client.requests.time.sleep", lambda s: slept.append(s) if s > 1 else sleep(s))
    fake = Fake(report=[(200, {"items": [told("p1", target_after_ms=7_000)]})])
    server.headers = {"Location": "/new"}
    session, url = polite_session(fake, [302, 200], server)
    with session, session.get(url, stream=stream) as response:
        assert response.url.endswith("/new") and response.text == "page"
    assert [round(pause) for pause in slept] == [7]


@pytest.mark.parametrize("stream", [False, True])
def test_requests_takes_no_part_that_was_not_requested(server, stream):
    fake = Fake()
    server.headers = {"Content-Range": "bytes 0-3/10"}
    session, url = polite_session(fake, [206, 206], server)
    with session:
        with pytest.raises(requests.RequestException, match="partial content"):
            session.get(url, stream=stream)
        assert session.get(url, headers={"Range": "bytes=0-3"}).text == "page"
    ended = [report["status"] for report in fake.reports() if not report.get("body_coming")]
    assert ended == [206, 206]


def test_an_adapter_is_not_pickled(server):
    """A pickled adapter would fail later, where it is unpickled: no attribute `_coordinator`."""
    session, _ = polite_session(Fake(), [], server)
    with session, pytest.raises(TypeError, match="PoliteAdapter cannot be pickled"):
        pickle.dumps(session)
