"""Tests Scrapy in a process of its own, with a running coordinator and limited hosts."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from scrapy.utils.test import get_crawler

from politely_client.bodies import Grant, Wish
from politely_client.scrapy.desk import Desk

HERE = Path(__file__).parent
ADDON = {"ADDONS": {"politely_client.scrapy.Politely": 500}}
MIDDLEWARE = {"DOWNLOADER_MIDDLEWARES": {"politely_client.scrapy.PolitelyMiddleware": 950}}
BUCKET = {"limit": {"kind": "token_bucket", "rate": 4, "burst": 2}}
OPEN = {"limit": {"kind": "none"}}


def fixed(rate):
    """Returns arguments of a coordinator that allows each host this rate."""
    return ("--law", "fixed", "--rate", str(rate))


def crawl(coordinator, urls, **settings):
    settings = {"POLITELY_COORDINATOR": coordinator.url, **settings}
    return subprocess.run(
        [sys.executable, HERE / "spider.py", json.dumps(settings), *urls],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
    )


def stats(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pages(town, n):
    return [f"{host}/page/{i}" for i in range(n) for host in town.urls.values()]


@pytest.mark.parametrize("settings", [ADDON, MIDDLEWARE], ids=["addon", "middleware alone"])
def test_no_page_is_lost_and_the_coordinator_hears_of_each(serve, town, settings):
    hosts = town(bucket=BUCKET, open=OPEN)
    coordinator = serve("--profile", "api", "--rate", "20")
    seen = stats(crawl(coordinator, pages(hosts, 10), **settings))
    assert seen["downloader/response_status_count/200"] == 20
    assert "retry/count" not in seen, "refusals are not Scrapy's business"
    judged = hosts.judge()
    assert all(host["pages"] == 10 for host in judged.values())
    assert sum(host["arrivals"] for host in judged.values()) == seen["politely/next/done"] + seen.get(
        "politely/next/retry", 0
    )


def test_links_are_followed_and_robots_txt_waits_for_its_permit(serve, town):
    hosts = town(open=OPEN)
    seen = stats(
        crawl(serve(*fixed(10)), pages(hosts, 3), **ADDON, DEEPER=True, ROBOTSTXT_OBEY=True)
    )
    assert seen["downloader/response_status_count/200"] == 6
    assert hosts.judge()["open"]["arrivals"] == seen["politely/next/done"] == 7


def test_two_spiders_keep_a_crawl_delay_together(serve, town):
    patient = {"robots": {"text": "User-agent: *\nCrawl-delay: 1\n"}, "service": {"mean_ms": 300, "cv": 0}}
    hosts = town(patient={**OPEN, **patient})
    coordinator = serve("--profile", "api", *fixed(20), "--burst", "4")
    urls = pages(hosts, 4)
    with ThreadPoolExecutor() as pool:
        spiders = [
            pool.submit(crawl, coordinator, half, **ADDON, ROBOTSTXT_OBEY=True)
            for half in (urls[::2], urls[1::2])
        ]
        for spider in spiders:
            assert stats(spider.result())["downloader/response_status_count/200"] == 3
    judged = hosts.judge()["patient"]
    assert (judged["pages"], judged["arrivals"]) == (4, 6)
    came = hosts.pages_came()
    assert all(later - at >= 1 for at, later in pairwise(came)), came


def test_a_permit_from_before_the_crawl_delay_is_given_back(monkeypatch):
    """The poll was open while robots.txt was read, so its permit does not respect the delay."""
    desk = Desk(get_crawler())
    given_back = []
    monkeypatch.setattr(desk, "_give_back", given_back.append)
    monkeypatch.setattr(desk, "_nudge_when_ready", lambda: None)
    asked_before = Wish.of("http://patient.test/")
    desk.crawl_delay("http://patient.test/page/1", 1.0)
    asked_after = replace(asked_before, crawl_delay=1.0)
    for wish in (asked_before, asked_after):
        grant = Grant(wish, "a-permit", "patient.test", time.monotonic(), 1.0, 60.0, 1, 0.0)
        desk._answered(wish, grant)
    assert len(given_back) == 1
    assert desk.take({"http://patient.test/"}) is not None
    assert desk.take({"http://patient.test/"}) is None


def test_a_slow_host_takes_no_room_from_the_others(serve, town):
    """If requests waited in the downloader, those to `slow` would take both of Scrapy's slots."""
    hosts = town(slow=OPEN, open=OPEN)
    coordinator = serve("--profile", "api", *fixed(100))
    key = hosts.urls["slow"].removeprefix("http://")
    httpx.patch(f"{coordinator.url}/api/v1/keys/{key}", json={"rate": 1, "burst": 1}).raise_for_status()
    urls = [f"{hosts.urls['slow']}/page/{i}" for i in range(6)]
    urls += [f"{hosts.urls['open']}/page/{i}" for i in range(40)]
    stats(crawl(coordinator, urls, **ADDON, CONCURRENT_REQUESTS=2))
    judged = hosts.judge()
    assert (judged["slow"]["pages"], judged["open"]["pages"]) == (6, 40)
    arrivals = hosts.arrivals()
    last = len(arrivals) - arrivals[::-1].index("open")
    assert arrivals[:last].count("slow") <= 4, arrivals


def test_requests_to_a_parked_host_are_dropped(serve, town):
    hosts = town(
        parked={"limit": {"kind": "token_bucket", "rate": 0.01, "burst": 1}, "signals": {"retry_after": "absurd"}},
        open=OPEN,
    )
    # One request at a time, so that no second one is refused.
    coordinator = serve(*fixed(4), "--in-flight", "1")
    seen = stats(crawl(coordinator, pages(hosts, 5), **ADDON))
    assert seen["politely/not_sent"] == 3, "one was served, one refused for ten years"
    assert hosts.judge()["open"]["pages"] == 5


def test_failed_requests_wait_out_their_backoff_in_the_queue(serve, town):
    hosts = town(down={**OPEN, "faults": [{"kind": "outage", "from_s": 0, "to_s": 1, "status": 503}]})
    seen = stats(crawl(serve(), pages(hosts, 2), **ADDON))
    assert seen["downloader/response_status_count/200"] == 2
    assert hosts.judge()["down"]["pages"] == 2


class Odd(BaseHTTPRequestHandler):
    """Redirects with a wait, a part, and plain pages."""

    protocol_version = "HTTP/1.1"
    came: ClassVar[dict[str, float]] = {}

    def do_GET(self):
        self.came[self.path] = time.monotonic()
        status, headers = {
            "/old": (302, {"Location": "/new", "Retry-After": "2"}),
            "/part": (206, {"Content-Range": "bytes 0-3/10"}),
        }.get(self.path, (200, {}))
        self.send_response(status)
        for name, value in {"Content-Length": "4", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *_):
        pass


def test_a_redirects_wait_is_kept_and_a_part_is_no_page(serve):
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        coordinator = serve(*fixed(100))
        seen = stats(crawl(coordinator, [f"{base}/old", f"{base}/part", f"{base}/plain"], **ADDON))
        server.shutdown()
    assert Odd.came["/new"] - Odd.came["/old"] >= 2
    assert Odd.came["/plain"] < Odd.came["/new"]
    assert seen["politely/partial"] == 1


def test_scrapys_own_delays_are_not_mixed_in(serve):
    done = crawl(serve(), [], **MIDDLEWARE, DOWNLOAD_DELAY=1, LOG_ENABLED=True)
    assert "would let permits expire" in done.stderr


def test_a_crawl_is_resumed_from_its_folder(serve, town, tmp_path):
    hosts = town(open=OPEN)
    coordinator, folder = serve(*fixed(5)), str(tmp_path / "job")
    first = crawl(
        coordinator, pages(hosts, 12), **ADDON, JOBDIR=folder, CLOSESPIDER_PAGECOUNT=3
    )
    assert stats(first)["finish_reason"] == "closespider_pagecount"
    assert stats(crawl(coordinator, [], **ADDON, JOBDIR=folder))["finish_reason"] == "finished"
    assert hosts.judge()["open"]["pages"] == 12
