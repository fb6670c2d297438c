"""Tests several coordinators, of which some do not answer."""

import asyncio

import httpx
import pytest
from fake import Fake, granted, refused

from politely_client import AsyncClient, Client, Outcome

URL = "http://a.example/x"


class Fleet:
    """A fake coordinator per host."""

    def __init__(self, **fakes: Fake) -> None:
        self.fakes = fakes
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.host)
        return self.fakes[request.url.host](request)


def test_the_next_is_asked_under_the_same_id():
    fleet = Fleet(
        a=Fake(acquire=[httpx.ConnectError("gone")]),
        b=Fake(acquire=[(503, {}, {"retry-after": "3600"})]),
        c=Fake(acquire=[(200, {"items": [refused(code="closing")]})]),
        d=Fake(acquire=[(200, {"items": [granted(permit="p9")]})]),
    )
    urls = "http://a, http://b/,http://c,http://d"
    with Client(urls, client="w1", transport=httpx.MockTransport(fleet)) as coordinator:
        permit = coordinator.acquire(URL)
        # The client stays with that coordinator.
        coordinator.report([(permit, Outcome(status=200))])
    assert fleet.asked == ["a", "b", "c", "d", "d"]
    (wish,) = {fake.of("acquire")[0]["items"][0]["id"] for fake in fleet.fakes.values()}
    assert wish


def test_a_report_that_is_not_heard_is_brought_to_the_next():
    fleet = Fleet(a=Fake(report=[httpx.ReadError("killed")]), b=Fake())
    coordinator = Client(["http://a", "http://b"], transport=httpx.MockTransport(fleet))
    permit = coordinator.acquire(URL)
    assert permit.report(status=200).what == "done"
    assert fleet.asked == ["a", "a", "b"]
    (first,), (second,) = fleet.fakes["a"].reports(), fleet.fakes["b"].reports()
    assert first == second


def test_asyncio_does_the_same():
    fleet = Fleet(a=Fake(acquire=[httpx.ConnectError("gone")]), b=Fake())

    async def main():
        transport = httpx.MockTransport(fleet)
        async with AsyncClient(["http://a", "http://b"], transport=transport) as coordinator:
            permits = await asyncio.gather(coordinator.acquire(URL), coordinator.acquire(URL))
            await permits[0].report(status=200)

    asyncio.run(main())
    assert fleet.asked == ["a", "b", "b", "b"]


def test_one_alone_is_asked_again():
    fleet = Fleet(a=Fake(acquire=[httpx.ConnectError("gone"), (503, {}, {"retry-after": "0"})]))
    Client("http://a", transport=httpx.MockTransport(fleet)).acquire(URL)
    assert fleet.asked == ["a"] * 3


INVALID = ["http://", "http://[::1", "http:/a", "https:a", "http//a", "//a:1", "a:port"]


@pytest.mark.parametrize("urls", ["", "http://a,", [], ["http://a", "ftp://b"], *INVALID])
def test_an_invalid_url_of_a_coordinator_is_an_error(urls):
    with pytest.raises(ValueError):
        Client(urls)


def test_several_urls_may_lack_the_scheme():
    fleet = Fleet(a=Fake(acquire=[httpx.ConnectError("gone")]), b=Fake())
    with Client("a:7077,b:7077", transport=httpx.MockTransport(fleet)) as coordinator:
        coordinator.acquire(URL)
    assert fleet.asked == ["a", "b"]
