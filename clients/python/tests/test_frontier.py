"""Tests the frontier: the asyncio client, and Scrapy processes that share a crawl."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from test_scrapy import ADDON, crawl, pages, stats

from politely_client import AsyncClient, BadCall, Frontier, NewPage

FAST = ("--law", "fixed", "--rate", "1000", "--burst", "100", "--in-flight", "100")
BUCKET = {"limit": {"kind": "token_bucket", "rate": 8, "burst": 4}}
SLOTS = {"limit": {"kind": "concurrency_reject", "slots": 4}, "service": {"mean_ms": 20, "cv": 0.3}}
OPEN = {"limit": {"kind": "none"}}
SHARED = {**ADDON, "SCHEDULER": "politely_client.scrapy.FrontierScheduler", "POLITELY_CRAWL": "news"}


@pytest.fixture
def frontier_at(serve, tmp_path):
    """Starts a coordinator with a frontier."""

    def start(*args):
        return serve("--frontier", str(tmp_path / "frontier"), *args)

    return start


async def visit_all(url, *, pages=2, idle=0.0, found=None):
    """Visits all pages of a crawl, and returns their URLs in order."""
    seen = []
    async with AsyncClient(url) as coordinator:
        frontier = Frontier(coordinator, "news")
        async for unit in frontier.units(pages=pages, idle=idle):
            async for page in unit:
                seen.append(page.url)
                page.report(status=200, latency=0.01, found=(found or {}).get(page.url, ()))
    return seen


def test_pages_are_put_visited_and_found(frontier_at):
    url = frontier_at(*FAST).url

    async def run():
        async with AsyncClient(url) as coordinator:
            frontier = Frontier(coordinator, "news")
            with pytest.raises(BadCall, match='no crawl is named "news"'):
                await frontier.take()
            answers = await frontier.put(
                ["https://a.com/1", NewPage("https://a.com/2", priority=9), "a.com/3", "https://a.com/1"]
            )
            assert [answer.answer for answer in answers] == ["new", "new", "invalid", "known"]
            assert "not a URL" in answers[2].detail
        seen = await visit_all(url, found={"https://a.com/1": ["https://b.com/", "https://a.com/2"]})
        assert seen == ["https://a.com/2", "https://a.com/1", "https://b.com/"]
        async with AsyncClient(url) as coordinator:
            counts = await Frontier(coordinator, "news").counts()
            assert (counts["finished"], counts["ready"], counts["leased"]) == (3, 0, 0)

    asyncio.run(run())


def test_a_loop_that_fails_gives_its_unit_back(frontier_at):
    url = frontier_at(*FAST).url

    async def fail():
        async with AsyncClient(url) as coordinator:
            frontier = Frontier(coordinator, "news")
            await frontier.put(["https://a.com/1", "https://a.com/2"])
            units = frontier.units(pages=2)
            async for unit in units:
                unit.pages[0].report(status=200)
                break
            await units.aclose()
            counts = await frontier.counts()
            assert (counts["finished"], counts["ready"], counts["leased"]) == (1, 1, 0)

    asyncio.run(fail())
    assert asyncio.run(visit_all(url)) == ["https://a.com/2"]


def test_a_loop_ends_when_no_worker_has_a_page_of_the_crawl(frontier_at, monkeypatch):
    monkeypatch.setattr("politely_client.frontier.FINISHED_EVERY", 0.1)
    url = frontier_at(*FAST).url

    async def run():
        async with AsyncClient(url) as coordinator:
            frontier = Frontier(coordinator, "news")
            await frontier.put(["https://a.com/1"])
            (unit,) = await frontier.take()
            other = asyncio.ensure_future(visit_all(url, idle=None))
            # The page may come back, or have links, so the other worker waits for it.
            done, _ = await asyncio.wait([other], timeout=1.0)
            assert not done
            unit.pages[0].report(status=200, found=["https://a.com/2"])
            await frontier.done([unit.words()])
            return await other

    assert asyncio.run(run()) == ["https://a.com/2"]


def test_a_page_that_failed_comes_again_with_its_attempts(frontier_at):
    url = frontier_at(*FAST).url

    async def run():
        attempts = []
        async with AsyncClient(url) as coordinator:
            frontier = Frontier(coordinator, "news")
            await frontier.put([NewPage("https://a.com/1", metadata={"depth": 1})])
            async for unit in frontier.units(idle=30.0):
                async for page in unit:
                    attempts.append((page.attempt, page.free, page.metadata))
                    page.report(status=503 if page.attempt < 3 else 200, latency=0.01)
                if len(attempts) == 3:
                    break
        return attempts

    depth = {"depth": 1}
    attempts = asyncio.run(run())
    assert [(attempt, metadata) for attempt, _, metadata in attempts] == [(1, depth), (2, depth), (3, depth)]


def test_two_scrapy_processes_share_a_crawl_and_visit_no_page_twice(frontier_at, town):
    hosts = town(bucket=BUCKET, slots=SLOTS, open=OPEN)
    coordinator = frontier_at("--profile", "api", "--rate", "30")
    urls = pages(hosts, 8)
    with ThreadPoolExecutor() as pool:
        spiders = [
            pool.submit(crawl, coordinator, urls, **SHARED, DEEPER=True, POLITELY_UNIT_PAGES=2)
            for _ in range(2)
        ]
        seen = [stats(spider.result()) for spider in spiders]
    fetched = [each.get("downloader/response_status_count/200", 0) for each in seen]
    # Each page has one link, to itself with a query.
    assert sum(fetched) == 2 * len(urls), seen
    counts = httpx.get(f"{coordinator.url}/api/v1/frontier/news").json()
    assert counts["pages"] == counts["finished"] == 2 * len(urls), counts
    judged = hosts.judge()
    assert all(host["pages"] == 8 for host in judged.values()), judged


def test_pages_of_a_killed_process_are_visited_by_another(frontier_at, town):
    hosts = town(open=OPEN)
    coordinator = frontier_at(*FAST)
    urls = pages(hosts, 20)

    async def take_and_die():
        async with AsyncClient(coordinator.url) as client:
            frontier = Frontier(client, "news")
            await frontier.put(urls)
            assert await frontier.take(pages=5, lease=1.0)

    asyncio.run(take_and_die())
    seen = stats(crawl(coordinator, [], **SHARED))
    assert seen["downloader/response_status_count/200"] == 20, seen


def test_a_scheduler_without_a_crawl_or_with_a_job_folder_is_refused(frontier_at):
    coordinator = frontier_at(*FAST)
    for settings, word in [
        ({"POLITELY_CRAWL": ""}, "POLITELY_CRAWL must name the crawl"),
        ({"JOBDIR": "/nowhere"}, "JOBDIR has no effect on a frontier"),
    ]:
        done = crawl(coordinator, ["https://a.com/"], **{**SHARED, **settings})
        assert word in done.stderr, done.stderr
