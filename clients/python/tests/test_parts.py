"""Tests the words about a unit in parts, as values and in a loop over units."""

import asyncio
import json
import logging

import httpx
import pytest
from fake import Fake

from politely_client import AsyncClient, Frontier
from politely_client.flow import Call
from politely_client.parts import BYTES_MAX, ELEMENTS_MAX, in_parts
from politely_client.shell import encoded, request_of

SHAPES = [(0, 0, 9), (0, 1, 9), (1, 0, 9), (3, 7, 9), (12_000, 1_000, 9), (50_000, 1, 200), (300, 300, 16_000)]


@pytest.mark.parametrize(("links", "pages", "size"), SHAPES)
def test_parts_say_the_same_in_order_and_each_fits(links, pages, size):
    words = {
        "token": 7,
        "found": [{"url": f"https://a.com/{number}", "metadata": "x" * size} for number in range(links)],
        "pages": [{"url": f"https://a.com/{number}", "then": "x" * size} for number in range(pages)],
    }
    parts = in_parts(words)
    for kind in ("found", "pages"):
        assert [element for part in parts for element in part[kind]] == words[kind]
    for part in parts:
        assert part["token"] == 7
        assert len(part["found"]) + len(part["pages"]) <= ELEMENTS_MAX
        assert len(json.dumps(part, separators=(",", ":"))) <= BYTES_MAX + 100
    assert [part.get("keep", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    outcomes = [bool(part["pages"]) for part in parts]
    assert outcomes == sorted(outcomes)  # links first


class Picky:
    """A coordinator with one unit of three pages. It accepts no call that contains a poison."""

    def __init__(self, poison):
        self.poison = poison
        self.units = [
            {
                "token": 1,
                "domain": "a.com",
                "lease_ms": 60_000,
                "grant": {
                    "permit": "p", "key": "a.com", "start_in_ms": 0, "valid_for_ms": 60_000,
                    "lease_ms": 60_000, "slots": 3, "interval_ms": 0,
                },
                "pages": [{"url": f"https://a.com/{n}", "priority": 5, "attempt": 1} for n in range(3)],
            }
        ]
        self.said = {"found": [], "pages": []}
        self.kept = None

    def __call__(self, request):
        body = json.loads(request.content)
        done = body["units"] if request.url.path.endswith("done") else body["done"]
        if self.poison in json.dumps(done):
            problem = {"title": "Bad", "detail": "no such text", "status": 422}
            return httpx.Response(422, json=problem, headers={"content-type": "application/problem+json"})
        for unit in done:
            self.kept = unit.get("keep", False)
            for kind, said in self.said.items():
                said += unit[kind]
        units, self.units = self.units, []
        answered = [{} for _ in done]
        return httpx.Response(200, json={"units": units, "done": answered, "retry_in_ms": 0})


@pytest.mark.parametrize("poison", ["poison-link", "poison-page", "no such thing"])
@pytest.mark.parametrize("ends", ["in its order", "by leaving the loop"])
def test_a_poison_costs_no_other_word_and_does_not_end_the_loop(poison, ends, caplog):
    coordinator = Picky(poison)

    async def crawl():
        mock = httpx.MockTransport(coordinator)
        async with AsyncClient("http://fake", client="w", transport=mock) as client:
            units = Frontier(client, "news").units(pages=3, idle=0)
            async for unit in units:
                for number, page in enumerate(unit.pages):
                    links = [f"https://a.com/{number}/{link}" for link in range(9)]
                    links[4] += "poison-link" * (number == 1)
                    page.report(status=200, headers={"server": "poison-page" * (number == 1)}, found=links)
                if ends != "in its order":
                    break
            await units.aclose()

    with caplog.at_level(logging.WARNING):
        asyncio.run(crawl())
    links, pages = (coordinator.said[kind] for kind in ("found", "pages"))
    assert len(links) == 27 - (poison == "poison-link")
    assert [page["url"][-1] for page in pages] == ["0", "1", "2"]
    finished = [page["url"][-1] for page in pages if "report" not in page]
    assert finished == (["1"] if poison == "poison-page" else [])
    assert coordinator.kept is False  # the unit was given back
    assert ("was not accepted" in caplog.text) == (poison != "no such thing")


def test_a_refusal_that_is_not_about_the_words_ends_the_loop():
    fake = Fake(**{"frontier/news/exchange": [(403, {"title": "Forbidden", "detail": "no worker"})]})

    async def crawl():
        async with AsyncClient("http://fake", client="w", transport=httpx.MockTransport(fake)) as client:
            async for _ in Frontier(client, "news").units(idle=0):
                pass

    with pytest.raises(Exception, match="no worker"):
        asyncio.run(crawl())


@pytest.mark.parametrize("lines", [True, False])
def test_half_a_surrogate_pair_in_a_link_is_sent_as_a_replacement(lines):
    link = {"url": "https://a.com/\ud800x"}
    call = Call("put", link, 1.0, lines=[link] if lines else None)
    sent = json.loads(request_of(call, "http://c")["content"])
    assert sent == {"url": "https://a.com/\ufffdx"}
    assert json.loads(encoded("\ud83d\ude00")) == "\U0001f600"  # both halves
