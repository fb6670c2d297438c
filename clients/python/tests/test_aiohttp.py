"""Tests the middleware of aiohttp over a fake coordinator and a real server of aiohttp."""

import asyncio

import aiohttp
import httpx
import pytest
from aiohttp import web
from fake import RETRY, Fake, granted, told

from politely_client import AsyncClient
from politely_client.aiohttp import PoliteMiddleware
from politely_client.bodies import resource_of

GIVE_UP = {"give_up": {"reason": "status 403"}}


def answers(*nexts):
    return [(200, {"items": [told(f"p{i + 1}", next)]}) for i, next in enumerate(nexts)]


def run(fake, answer, use):
    """Runs `use(session, url)` with a server that answers with `answer`."""

    async def main():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        mock = httpx.MockTransport(fake)
        async with AsyncClient("http://fake", client="w1", transport=mock) as coordinator:
            polite = PoliteMiddleware(coordinator)
            async with aiohttp.ClientSession(middlewares=[polite]) as session:
                got = await use(session, f"http://127.0.0.1:{port}/x")
                await until_told(fake)
        await runner.cleanup()
        return got

    return asyncio.run(main())


async def until_told(fake):
    """Waits until no permit is without a report. The report of a body is sent in the background."""
    for _ in range(500):
        if len(fake.reports()) + len(fake.of("cancel")) >= len(fake.of("acquire")):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(fake.calls)


async def get(session, url, method="GET", **request):
    async with session.request(method, url, **request) as response:
        return response.status, await response.read()


def in_turn(*made):
    """Returns a handler that answers with each of `made` in turn."""
    left, seen = list(made), []

    async def answer(request):
        seen.append(await request.read())
        return left.pop(0)()

    answer.seen = seen
    return answer


def test_a_page_is_paced_and_reported_when_its_body_has_come():
    fake = Fake()

    async def slow(request):
        response = web.StreamResponse(headers={"RateLimit": "r"})
        await response.prepare(request)
        await response.write(b"pa")
        assert fake.reports() == []
        await response.write(b"ge")
        return response

    assert run(fake, slow, get) == (200, b"page")
    (report,) = fake.reports()
    assert (report["status"], report["bytes"], report["headers"]["ratelimit"]) == (200, 4, "r")
    (acquire,) = fake.of("acquire")
    assert report["resource"] == resource_of(acquire["items"][0]["url"])


def test_a_refused_request_is_sent_again():
    fake = Fake(report=answers(RETRY, "done"))
    host = in_turn(lambda: web.Response(status=429, text="slow"), lambda: web.Response(text="page"))

    async def post(session, url):
        return await get(session, url, "PUT", data=b"kept")

    assert run(fake, host, post) == (200, b"page")
    first, second = fake.reports()
    assert (first["body_start"], first["method"]) == ("slow", "PUT")
    assert (second["attempt"], second["free"]) == (2, 1)
    assert host.seen == [b"kept", b"kept"]


def test_a_body_that_a_rule_reads_is_sent_and_a_soft_refusal_is_sent_again():
    grants = [(200, {"items": [granted(0, f"p{i}", send_bodies="all")]}) for i in (1, 2)]
    fake = Fake(acquire=grants, report=answers(RETRY, "done"))
    host = in_turn(lambda: web.Response(text="slow down"), lambda: web.Response(text="page"))
    assert run(fake, host, get) == (200, b"page")
    assert [report["body_start"] for report in fake.reports()] == ["slow down", "page"]


def test_the_last_answer_is_the_callers():
    fake = Fake(report=answers(GIVE_UP))
    host = in_turn(lambda: web.Response(status=403, text="Just a moment..."))
    assert run(fake, host, get) == (403, b"Just a moment...")
    assert "Just a moment" in fake.reports()[0]["body_start"]


def test_the_last_error_is_the_callers_and_is_reported():
    fake = Fake(report=answers(GIVE_UP))

    async def refused(session, url):
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(session, "http://127.0.0.1:1/")

    run(fake, in_turn(), refused)
    assert fake.reports()[0]["error"] == "connect"


def test_a_stream_is_not_sent_again():
    async def chunks():
        yield b"once"

    fake, host = Fake(report=answers(RETRY)), in_turn(lambda: web.Response(status=429))

    async def post(session, url):
        return await get(session, url, "POST", data=chunks())

    assert run(fake, host, post)[0] == 429


def test_a_response_that_is_closed_before_its_end_is_reported():
    fake, reported = Fake(), asyncio.Event()

    async def unfinished(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await reported.wait()
        return response

    async def close(session, url):
        response = await session.get(url)
        response.close()
        await until_told(fake)
        reported.set()

    run(fake, unfinished, close)
    (report,) = fake.reports()
    assert report["status"] == 200


def test_an_unrequested_part_is_an_error():
    part = {"Content-Range": "bytes 0-3/9"}
    host = in_turn(lambda: web.Response(status=206, text="page", headers=part))

    async def fetch(session, url):
        with pytest.raises(aiohttp.ClientPayloadError, match="not requested"):
            await get(session, url)

    run(Fake(), host, fetch)


def test_each_hop_has_a_permit():
    fake = Fake()
    host = in_turn(
        lambda: web.Response(status=302, headers={"Location": "/y"}), lambda: web.Response()
    )
    assert run(fake, host, get)[0] == 200
    asked = [body["items"][0]["url"].rpartition("/")[2] for body in fake.of("acquire")]
    assert asked == ["x", "y"]


def test_with_a_coordinator_a_session_keeps_the_rate(serve, town):
    url = serve("--law", "fixed", "--rate", "20", "--burst", "1").url
    hosts = town(shop={"limit": {"kind": "token_bucket", "rate": 25.0, "burst": 6}, "pages": 20})
    pages = [f"{hosts.urls['shop']}/page/{i}" for i in range(12)]

    async def main():
        async with AsyncClient(url) as coordinator:
            polite = PoliteMiddleware(coordinator)
            async with aiohttp.ClientSession(middlewares=[polite]) as session:
                return await asyncio.gather(*(get(session, page) for page in pages))

    assert {status for status, _ in asyncio.run(main())} == {200}
    assert hosts.judge()["shop"]["refused"] == 0
