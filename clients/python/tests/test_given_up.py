"""Tests that a call that is given up leaves no slot taken, and that no request lacks a permit."""

import asyncio
import gc
import http.server
import threading
import time

import anyio
import httpx
import pytest
import requests

from politely_client import AsyncClient, Client
from politely_client.httpx import AsyncPoliteTransport, PoliteTransport
from politely_client.requests import PoliteAdapter

LOCK = ("--profile", "api", "--law", "fixed", "--rate", "1000", "--burst", "1000", "--in-flight", "1")


# The connections of an ended event loop cannot be closed in an orderly way.
lost_connections = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def slots(serve, key="custom%2Flock"):
    return httpx.get(f"{serve.url}/api/v1/keys/{key}").json().get("in_flight", 0)


def until_free(serve, key="custom%2Flock", within=20.0):
    until = time.monotonic() + within
    while slots(serve, key):
        assert time.monotonic() < until, "a slot stays taken"
        time.sleep(0.02)


async def lock_for_a_moment(coordinator, scope):
    """Makes one of many calls that are given up near their grant."""
    if scope == "anyio":
        with anyio.move_on_after(0.03):
            permit = await coordinator.acquire(key="custom/lock")
            await permit.report(status=200)
    else:
        try:
            permit = await asyncio.wait_for(coordinator.acquire(key="custom/lock"), 0.03)
        except asyncio.TimeoutError:
            return
        await permit.report(status=200)


@pytest.mark.parametrize("scope", ["asyncio", "anyio"])
def test_tasks_that_give_up_around_their_grant_leave_no_slot_taken(serve, scope):
    one = serve(*LOCK)

    async def main():
        async with AsyncClient(one.url, client="w") as coordinator:
            await asyncio.gather(*(lock_for_a_moment(coordinator, scope) for _ in range(40)))

    asyncio.run(main())
    until_free(one)


def test_a_context_that_is_cancelled_gives_its_slot_back(serve):
    one = serve(*LOCK)

    async def main():
        coordinator = AsyncClient(one.url, client="w")
        with anyio.move_on_after(0.2):
            async with coordinator.permit(key="custom/lock"):
                await asyncio.sleep(30)

    asyncio.run(main())  # its end cancels the background tasks
    until_free(one)


@lost_connections
def test_a_coordinator_serves_a_second_event_loop(serve):
    one = serve(*LOCK)
    coordinator = AsyncClient(one.url, client="w")
    held = asyncio.run(coordinator.acquire(key="custom/lock"))

    async def main():
        await held.report(status=200)
        permit = await coordinator.acquire(key="custom/lock")
        await permit.cancel()
        await coordinator.aclose()

    asyncio.run(main())
    until_free(one)


@lost_connections
def test_the_end_of_the_event_loop_gives_back_what_was_just_asked_for(serve):
    one = serve(*LOCK)
    coordinator = AsyncClient(one.url, client="w")
    with Client(one.url, client="holder") as holder:
        held = holder.acquire(key="custom/lock")

        async def main():
            asyncio.ensure_future(coordinator.acquire(key="custom/lock"))
            await asyncio.sleep(0.2)

        asyncio.run(main())
        held.report(status=200)
    until_free(one)


@pytest.fixture
def page():
    """A host and a proxy in one: it answers every request and records its path."""
    seen = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def key_of(url):
    return url.removeprefix("http://").replace(":", "%3A")


def test_a_response_that_is_dropped_gives_its_slot_back(serve, page):
    one, (url, _) = serve(*LOCK), page
    coordinator = Client(one.url, client="w")
    session = requests.Session()
    session.mount("http://", PoliteAdapter(coordinator))
    client = httpx.Client(transport=PoliteTransport(coordinator))
    for get in (
        lambda: session.get(url, stream=True),
        lambda: client.send(client.build_request("GET", url), stream=True),
    ):
        response = get()
        assert slots(one, key_of(url)) == 1
        del response
        gc.collect()
        until_free(one, key_of(url))
    for each in (session, client, coordinator):
        each.close()


def test_an_asyncio_response_that_is_dropped_gives_its_slot_back(serve, page):
    one, (url, _) = serve(*LOCK), page

    async def main():
        async with AsyncClient(one.url, client="w") as coordinator:
            client = httpx.AsyncClient(transport=AsyncPoliteTransport(coordinator))
            response = await client.send(client.build_request("GET", url), stream=True)
            del response
            gc.collect()
            until = time.monotonic() + 20
            async with httpx.AsyncClient() as looks:
                while (await looks.get(f"{one.url}/api/v1/keys/{key_of(url)}")).json()["in_flight"]:
                    assert time.monotonic() < until, "a slot stays taken"
                    await asyncio.sleep(0.02)
            await client.aclose()

    asyncio.run(main())


QUICK = ("--profile", "api", "--law", "fixed", "--rate", "1000", "--in-flight", "10")


def granted(serve):
    return httpx.get(f"{serve.url}/api/v1/stats").json()["granted"]


def test_a_proxy_is_used_and_no_request_goes_past_its_permit(serve, page, monkeypatch):
    one, (proxy, seen) = serve(*QUICK), page
    coordinator = Client(one.url, client="w")
    far = "http://far.example/page"
    with httpx.Client(transport=PoliteTransport(coordinator), proxy=proxy) as client:
        client.get(far)
    assert (seen, granted(one)) == ([far], 1)
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with httpx.Client(transport=PoliteTransport(coordinator)) as client:
        client.get(far)
        client.get(f"{proxy}/direct")
    assert (seen, granted(one)) == ([far, far, "/direct"], 3)
    coordinator.close()

    async def main():
        async with (
            AsyncClient(one.url, client="w") as asynchronous,
            httpx.AsyncClient(transport=AsyncPoliteTransport(asynchronous), proxy=proxy) as client,
        ):
            await client.get(far)

    asyncio.run(main())
    assert (seen[3:], granted(one)) == ([far], 4)


def test_what_would_go_past_the_permits_is_an_error():
    coordinator = Client("http://fake")
    own = PoliteTransport(coordinator, httpx.HTTPTransport())
    polite = PoliteTransport(coordinator)
    with pytest.raises(ValueError, match="^proxy: "):
        httpx.Client(transport=own, proxy="http://proxy.example")
    with pytest.raises(ValueError, match="^verify: "):
        httpx.Client(transport=own, verify=False)
    with pytest.raises(ValueError, match="^mounts: "):
        httpx.Client(transport=polite, mounts={"http://a.example": httpx.HTTPTransport()})
    httpx.Client(transport=polite, verify=False, mounts={"http://b.example": None}).close()
    coordinator.close()
