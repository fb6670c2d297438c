"""Tests both shells over a fake coordinator: their contexts, and that they send the same calls."""

import asyncio
import json
import re
import time
import traceback

import httpx
import pytest
from fake import RETRY, Fake, granted, refused, told

from politely_client import (
    AsyncClient,
    Unavailable,
    BadCall,
    Client,
    LeaseLost,
    Outcome,
    Refused,
    TooLate,
)
from politely_client.bodies import resource_of

URL = "http://a.example/x"


def sync(fake, **more):
    return Client("http://fake/", client="w1", transport=httpx.MockTransport(fake), **more)


def aio(fake, **more):
    return AsyncClient("http://fake", client="w1", transport=httpx.MockTransport(fake), **more)


def test_the_token_goes_into_the_header_alone(monkeypatch):
    fake = Fake()
    sync(fake, token="t1").acquire(URL)
    monkeypatch.setenv("POLITELY_TOKEN", "t2")
    sync(fake).acquire(URL)
    assert [headers["authorization"] for headers in fake.headers] == ["Bearer t1", "Bearer t2"]
    assert "t1" not in str(fake.calls)


def blocking(fake, url="http://fake", **more):
    with Client(url, transport=httpx.MockTransport(fake)) as coordinator:
        coordinator.acquire(URL, **more)


def awaited(fake, url="http://fake", **more):
    async def main():
        async with AsyncClient(url, transport=httpx.MockTransport(fake)) as coordinator:
            await coordinator.acquire(URL, **more)

    asyncio.run(main())


both = pytest.mark.parametrize("ask", [blocking, awaited])


@both
def test_who_is_away_and_why_is_said(ask, caplog):
    """A bare "no answer" would make a wrong address look like a long wait."""
    fake = Fake(acquire=[httpx.ConnectError("[Errno 111] Connection refused")] * 99)
    why = "http://fake:1/api/v1: ConnectError: [Errno 111] Connection refused"
    with pytest.raises(Unavailable, match=re.escape(why)):
        ask(fake, "http://me:hush@fake:1", wait=1.0)
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "politely_client"]
    assert why in warning and "hush" not in warning
    with pytest.raises(Unavailable, match="http://fake/api/v1: ReadTimeout$"):
        ask(Fake(acquire=[httpx.ReadTimeout("")]), wait=0.0)


@both
def test_a_page_that_is_no_answer_is_named(ask):
    def somebody_else(_):
        return httpx.Response(200, text="<h1>It works!</h1>")

    with pytest.raises(Unavailable, match="http://fake/api/v1: status 200 without JSON"):
        ask(somebody_else, wait=0.0)


@both
@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {"json": {"hello": "world"}}),
        (301, {"headers": {"location": "https://fake/"}}),
        (404, {"text": "<h1>Not Found</h1>"}),
        (404, {"json": {"detail": "Not Found"}}),
        (405, {"text": ""}),
        (501, {"text": "Unsupported method ('POST')"}),
    ],
)
def test_an_answer_of_another_web_server_names_the_url_and_the_next_step(ask, status, answer):
    """An error of only "status 404" would look like one of the coordinator."""
    with pytest.raises(BadCall) as said:
        ask(lambda _: httpx.Response(status, **answer), "http://me:hush@fake:1")
    text = str(said.value)
    assert text.startswith("http://fake:1/api/v1: this is no coordinator")
    assert f"it answers {status}; start `politely serve`" in text
    assert "Client(url) or POLITELY_COORDINATOR" in text
    assert said.value.status == 0


@both
def test_an_unavailable_coordinator_is_named_with_its_status(ask):
    with pytest.raises(Unavailable, match="http://fake/api/v1: status 503$"):
        ask(Fake(acquire=[(503, {})]), wait=0.0)


@both
@pytest.mark.parametrize("url", ["fake", "fake:7077", " fake:7077/ ", "127.0.0.1:7077", "[::1]:7077"])
def test_a_url_without_a_scheme_is_called_over_http(ask, url):
    called = []

    def answer(request):
        called.append(str(request.url))
        return Fake()(request)

    ask(answer, url)
    assert called[0] == f"http://{url.strip().rstrip('/')}/api/v1/acquire"


@both
@pytest.mark.parametrize(
    "error",
    [
        httpx.UnsupportedProtocol("not http"),
        httpx.InvalidURL("URL too long"),
    ],
)
def test_what_will_never_work_is_not_waited_for(ask, error):
    """A retry cannot succeed, and httpx's own error would not name the coordinator."""
    with pytest.raises(BadCall, match=f"http://fake/api/v1: {type(error).__name__}: {error}") as said:
        ask(Fake(acquire=[error]))
    assert said.value.status == 0


def test_a_token_that_cannot_be_sent_stays_secret(serve, caplog):
    """A token with its line's end can never be sent, so the call must not wait."""
    caplog.set_level("DEBUG")
    with (
        Client(serve().url, token="hush\n") as coordinator,
        pytest.raises(BadCall, match="the token holds what a header must not") as said,
    ):
        coordinator.acquire(URL)
    assert "hush" not in "".join(traceback.format_exception(said.value))
    assert "hush" not in "".join(each.getMessage() for each in caplog.records if each.name == "politely_client")


def test_a_reported_permit_is_not_given_back():
    fake = Fake()
    with sync(fake).permit(URL) as permit:
        next = permit.report(httpx.Response(200, headers={"Set-Cookie": "x=1", "Date": "now"}))
    assert next.what == "done" and fake.of("cancel") == []
    (report,) = fake.reports()
    assert report["permit"] == "p1" and report["headers"] == {"date": "now"}


def test_an_unused_permit_is_given_back():
    fake = Fake()
    with sync(fake).permit(URL):
        pass
    assert fake.of("cancel") == [{"client": "w1", "permits": ["p1"]}]


def test_an_error_of_the_request_is_reported():
    fake = Fake()
    with pytest.raises(httpx.ReadTimeout), sync(fake).permit(URL):
        raise httpx.ReadTimeout("")
    assert fake.reports()[0]["error"] == "timeout" and fake.of("cancel") == []


def test_another_error_gives_the_permit_back_as_sent():
    fake = Fake()
    with pytest.raises(KeyError), sync(fake).permit(URL):
        raise KeyError
    assert fake.of("cancel") == [{"client": "w1", "permits": ["p1"], "sent": True}]


def test_the_requests_error_outlives_a_coordinator_that_takes_no_reports():
    fake = Fake(report=[(400, {"detail": "no"})])
    with pytest.raises(httpx.ReadTimeout), sync(fake).permit(URL):
        raise httpx.ReadTimeout("")


def test_attempts_go_on_as_the_coordinator_says():
    answers = [RETRY, {"retry": {"after_ms": 1}}, "done"]
    fake = Fake(report=[(200, {"items": [told(f"p{i + 1}", answers[i])]}) for i in range(3)])
    for permit in sync(fake).attempts(URL):
        if permit.attempts.number == 2:
            permit.failed(ConnectionResetError())
        else:
            permit.report(status=429)
    first, second, third = fake.reports()
    assert "attempt" not in first
    assert (second["attempt"], second["free"], second["error"]) == (2, 1, "reset")
    assert (third["attempt"], third["free"]) == (3, 1)
    assert [body["items"][0].get("kind") for body in fake.of("acquire")] == [None, "retry", "retry"]


def test_attempts_without_a_report_end():
    fake = Fake()
    assert len([permit.name for permit in map(lambda p: p.state, sync(fake).attempts(URL))]) == 1
    assert len(fake.of("cancel")) == 1


def test_any_may_start_later():
    fake = Fake(acquire=[(200, {"items": [granted(0, "p2", start_in_ms=30), granted(1, "p1")]})])
    permits = sync(fake).acquire_any(["a.example", "http://b.example/"], 2)
    assert [permit.target for permit in permits] == ["http://b.example/", "a.example"]
    with permits[1] as permit:
        assert permit.state.may_start(time.monotonic())
        permit.report(status=200)
    late = permits[0]
    late.state.valid_until = 0.0
    with pytest.raises(TooLate):
        late.begin()
    assert fake.of("cancel")[0]["permits"] == ["p1"]


def test_each_departure_is_reported_by_its_number():
    fake = Fake(acquire=[(200, {"items": [granted(slots=3, interval_ms=5.0)]})])
    for departure in sync(fake).acquire(URL, slots=3):
        departure.report(status=200)
    assert [report.get("slot", 0) for report in fake.reports()] == [0, 1, 2]
    assert fake.of("acquire")[0]["items"][0]["slots"] == 3


def test_a_lost_lease_is_an_error():
    fake = Fake(renew=[(200, {"renewed": [], "lost": ["p1"]})])
    permit = sync(fake).acquire(URL)
    with pytest.raises(LeaseLost):
        permit.renew()
    assert permit.lost and permit.lease_left == 0.0
    with pytest.raises(LeaseLost):
        permit.renew()
    assert len(fake.of("renew")) == 1


def test_a_thread_keeps_the_lease_if_asked():
    # Half of the grant's lease is left after each renewal, so the next one is due at once.
    half = {"renewed": [{"permit": "p1", "lease_ms": 60_000}], "lost": []}
    fake = Fake(acquire=[(200, {"items": [granted(lease_ms=120_000)]})], renew=[(200, half)] * 9999)
    with sync(fake).permit(URL) as permit:
        permit.renew()
        permit.keep()
        while len(fake.of("renew")) < 3:
            assert not permit.lost
            time.sleep(0.001)
        permit.report(status=200)


def test_asyncio_says_the_same():
    def words(fake):
        # Ids are random.
        return re.sub(r'"id": "\w+"', "", json.dumps(fake.calls))

    def blocking(fake):
        with sync(fake) as coordinator:
            with coordinator.permit(URL, also=["site/b.example"], priority=3) as permit:
                permit.report(status=200, latency=0.5)
            (other,) = coordinator.acquire_any(["a.example", "b.example"])
            outcome = Outcome(status=200, latency=0.5)
            _, permits = coordinator.exchange([(other, outcome)], [URL])
            coordinator.renew(permits)
            coordinator.cancel(permits)

    async def awaited(fake):
        async with aio(fake) as coordinator:
            async with coordinator.permit(URL, also=["site/b.example"], priority=3) as permit:
                await permit.report(status=200, latency=0.5)
            (other,) = await coordinator.acquire_any(["a.example", "b.example"])
            outcome = Outcome(status=200, latency=0.5)
            _, permits = await coordinator.exchange([(other, outcome)], [URL])
            await coordinator.renew(permits)
            await coordinator.cancel(permits)

    one, two = Fake(), Fake()
    blocking(one)
    asyncio.run(awaited(two))
    assert words(one) == words(two) and len(one.calls) == 6


def test_asyncio_attempts_and_errors():
    fake = Fake(report=[(200, {"items": [told("p1", RETRY)]})])

    async def main():
        coordinator = aio(fake)
        numbers = []
        async for permit in coordinator.attempts(URL):
            numbers.append(permit.attempts.number)
            await permit.report(status=200 if numbers == [1, 2] else 429)
        with pytest.raises(httpx.ConnectError):
            async with coordinator.permit(URL):
                raise httpx.ConnectError("refused")
        async with coordinator.permit(URL):
            pass
        assert numbers == [1, 2]
        fake.script["acquire"] = [(200, {"items": [refused()]})]
        with pytest.raises(Refused):
            await coordinator.permit(URL)

    asyncio.run(main())
    assert fake.reports()[2]["error"] == "connect"
    assert len(fake.of("cancel")) == 1


def test_asyncio_keeps_the_lease_and_aborts_when_it_is_lost():
    kept = {"renewed": [{"permit": "p1", "lease_ms": 1_000}], "lost": []}
    lost = {"renewed": [], "lost": ["p1"]}
    fake = Fake(
        acquire=[(200, {"items": [granted(lease_ms=1_000)]})],
        renew=[(200, kept), (200, kept), (200, lost)],
    )

    async def main():
        with pytest.raises(LeaseLost):
            async with aio(fake).permit(URL):
                await asyncio.Event().wait()
        await asyncio.sleep(0)  # the cancellation is over

    asyncio.run(main())
    assert len(fake.of("renew")) == 3 and fake.of("cancel") == []


def test_asyncio_cancellation_gives_the_permit_back_as_sent():
    fake = Fake()

    async def main():
        entered = asyncio.Event()

        async def worker():
            async with aio(fake).permit(URL):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(worker())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert fake.of("cancel") == [{"client": "w1", "permits": ["p1"], "sent": True}]


def test_asyncio_departures():
    fake = Fake(acquire=[(200, {"items": [granted(slots=2, interval_ms=1.0)]})])

    async def main():
        async for departure in await aio(fake).permit(URL, slots=2):
            await departure.report(status=200)

    asyncio.run(main())
    assert [report.get("slot", 0) for report in fake.reports()] == [0, 1]


def test_a_report_names_its_url():
    answer = told("p1", {"retry": {"after_ms": 2_000}}, url_fault=True)
    fake = Fake(report=[(200, {"items": [answer]})])
    permit = sync(fake).acquire(URL)
    next = permit.report(status=429)
    assert fake.reports()[0]["resource"] == resource_of(URL)
    assert next.url_fault and next.after == 2.0


def test_a_permit_of_several_departures_or_of_a_key_takes_the_responses_url():
    fake = Fake(acquire=[(200, {"items": [granted(slots=2)]}), (200, {"items": [granted()]})])
    coordinator, request = sync(fake), httpx.Request("GET", URL + "?page=2")
    first, second = coordinator.acquire(URL, slots=2)
    first.report(status=200)
    second.report(httpx.Response(429, request=request))
    coordinator.acquire(key="custom/a").failed(httpx.ReadError("", request=request))
    said = [report.get("resource") for report in fake.reports()]
    page = resource_of(URL + "?page=2")
    assert said == [None, page, page]
