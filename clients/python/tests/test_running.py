"""Tests against a running coordinator, and limited hosts that log their requests."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import requests

from politely_client import AsyncClient, BadCall, Client, Outcome, TimedOut
from politely_client.httpx import AsyncPoliteTransport, PoliteTransport
from politely_client.requests import PoliteAdapter

SOURCES = str(Path(__file__).parents[1] / "src")
SLOW = {"limit": {"kind": "token_bucket", "rate": 5, "burst": 2}, "signals": {"retry_after": "seconds"}}
WINDOW = {"limit": {"kind": "fixed_window", "count": 10, "window_s": 2, "aligned": True}}
SLOTS = {"limit": {"kind": "concurrency_reject", "slots": 4}, "service": {"mean_ms": 20, "cv": 0.3}}
OPEN = {"limit": {"kind": "none"}}


def test_a_permit_is_granted_renewed_and_reported(serve):
    with Client(serve().url) as coordinator:
        permit = coordinator.acquire("http://a.example/x")
        assert permit.key == "a.example" and not permit.lost and permit.slots == 1
        permit.renew()
        next = permit.report(status=200, latency=0.1)
        assert next.what == "done" and next.rate > 0 and not next.late
        again = coordinator.report([(permit, Outcome(status=200))])
        assert again[0].late


def test_what_was_given_back_may_be_had_again(serve):
    with Client(serve("--in-flight", "1", "--rate", "100").url) as coordinator:
        with coordinator.permit(key="a.example"):
            with pytest.raises(TimedOut):
                coordinator.acquire(key="a.example", wait=0.0)
        with coordinator.permit(key="a.example", wait=30.0) as permit:
            permit.report(status=200)


def test_limits_are_set_and_taken_back(serve):
    with Client(serve("--law", "fixed", "--rate", "100").url) as coordinator:

        def limits() -> dict:
            url = f"{coordinator._places.current().base}/keys/custom%2Fa%2Fb"
            return httpx.get(url).json()["limits"]

        coordinator.set_limits("custom/a/b", rate=2.5, in_flight=3)
        assert limits() == {"rate": 2.5, "in_flight": 3}
        coordinator.set_limits("custom/a/b", rate=None)
        assert limits() == {"in_flight": 3}
        coordinator.set_limits("custom/a/b", limits=["10/s", "1000/day@Europe/Berlin"])
        assert limits() == {"in_flight": 3, "limits": ["10/s", "1000/day@Europe/Berlin"]}
        with pytest.raises(BadCall, match="unknown time zone `Atlantis`"):
            coordinator.set_limits("custom/a/b", limits=["1/day@Atlantis"])
        coordinator.set_limits("custom/a/b", limits=None)
        assert limits() == {"in_flight": 3}
        with pytest.raises(BadCall, match="must be from 0.000001"):
            coordinator.set_limits("custom/a/b", rate=0)


RULES = """
[[rule]]
match    = ["127.0.0.1"]
account  = "example/{token_name}"
limits   = ["400kB/2s", "100/s"]

[[rule.key]]
name   = "consumer/{client}"
limits = ["4/2s"]
"""


def most(times: list[float], length: float) -> int:
    """Returns the most requests in any window of this length."""
    return max(sum(first <= at < first + length for at in times) for first in times)


def test_each_worker_and_the_bytes_of_an_account_are_limited(serve, town, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    served = serve("--law", "fixed", "--rate", "1000", "--in-flight", "100", "--policy", str(rules))
    hosts = town(open=OPEN)
    labels = {"token_name": "ci"}

    def fetch(name: str, size: int, pages: int) -> None:
        with Client(served.url, client=name) as coordinator:
            for page in range(pages):
                url = f"{hosts.urls['open']}/page/{page}"
                with coordinator.permit(url, labels=labels, wait=60.0) as permit:
                    httpx.get(url)
                    permit.report(status=200, bytes=size)

    with Client(served.url) as coordinator, pytest.raises(BadCall, match='the label "token_name"'):
        coordinator.acquire(hosts.urls["open"])
    fetch("one", 0, 10)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: fetch(name, 100_000, 3), ["two", "three", "four"]))
    hosts.judge()
    came = hosts.pages_came()
    assert len(came) == 19
    # A request may come late on a busy machine, so the window of the judge is shorter.
    assert most(came[:10], 1.5) <= 4
    # Two of three requests in flight may exceed the bytes of a window.
    assert most(came[10:], 1.5) <= 6


SOFT = """
[[rule]]
match = ["soft.example"]

[[rule.answer]]
when = { status = 200, body = "slow down" }
signal = "rate_limited"
retry_after = "body:wait ([0-9]+ seconds)"
"""


def test_a_soft_refusal_counts_as_one_and_a_report_without_its_body_is_an_error(serve, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(SOFT)
    url = "http://soft.example/x"
    pages = [httpx.Response(200, text=text) for text in ("slow down: wait 2 seconds", "page")]
    host = httpx.MockTransport(lambda _: pages.pop(0))
    with Client(serve("--policy", str(rules)).url) as coordinator:
        with coordinator.permit(url) as permit, pytest.raises(BadCall, match="line 5") as said:
            permit.report(status=200)
        assert "body_start" in str(said.value)
        began = time.monotonic()
        with httpx.Client(transport=PoliteTransport(coordinator, host)) as http:
            assert http.get(url).text == "page"
        assert time.monotonic() - began >= 2.0


def test_tokens_are_settled(serve):
    served = serve("--law", "fixed", "--rate", "100", "--limits", "1000 tokens/h")
    with Client(served.url) as coordinator:

        def left() -> int:
            url = f"{coordinator._places.current().base}/keys/custom%2Fllm"
            return httpx.get(url).json()["budgets"][0]["remaining"]

        estimate = {"requests": 1, "tokens": 600}
        with coordinator.permit(key="custom/llm", cost=estimate, wait=5.0) as permit:
            assert left() == 400
            permit.settle(tokens=340)
            permit.report(status=200)
        assert left() == 660
        with pytest.raises(ValueError, match="settle it before the report"):
            permit.settle(tokens=1)
        with pytest.raises(BadCall, match="more than the whole limit 1000 tokens/h"):
            coordinator.acquire(key="custom/llm", cost={"tokens": 1001}, wait=0.0)
        with (
            coordinator.permit(key="custom/llm", cost={"tokens": 1}, wait=5.0) as permit,
            pytest.raises(ValueError, match="whole number from 0"),
        ):
            permit.settle(tokens=-1)


def test_a_slot_goes_to_who_waits_for_it(serve):
    """A report from another thread frees the slot during one long poll."""
    with Client(serve("--in-flight", "1", "--rate", "100").url) as coordinator:
        first = coordinator.acquire(key="a.example")
        got = []
        waiter = threading.Thread(target=lambda: got.append(coordinator.acquire(key="a.example")))
        waiter.start()
        first.report(status=200)
        waiter.join()
        got[0].report(status=200)


def test_any_of_many_hosts(serve):
    with Client(serve().url) as coordinator:
        taken = coordinator.acquire(key="a.example")
        (permit,) = coordinator.acquire_any(["a.example", "http://b.example/x"])
        assert permit.key == "b.example"
        nexts, (other,) = coordinator.exchange([(permit, Outcome(status=200))], ["c.example"])
        assert nexts[0].what == "done" and other.key == "c.example"
        coordinator.cancel([taken, other])


def test_a_wrong_item_and_a_wrong_token_are_named(serve, tmp_path):
    with Client(serve().url) as coordinator, pytest.raises(BadCall, match="url"):
        coordinator.acquire("http://")
    token = tmp_path / "token"
    token.write_text("right-right-right-right-right-right")
    token.chmod(0o600)
    url = serve("--token-file", str(token)).url
    with Client(url, token="wrong") as coordinator, pytest.raises(BadCall) as said:
        coordinator.acquire(key="a.example")
    assert said.value.status == 401
    with Client(url, token=token.read_text()) as coordinator:
        coordinator.acquire(key="a.example").report(status=200)


def test_workers_carry_on_when_the_coordinator_returns(serve, tmp_path):
    first = serve("--state", str(tmp_path))
    with Client(first.url) as coordinator:
        permit = coordinator.acquire(key="a.example")
        first.end(signal.SIGKILL)
        got = []
        waiter = threading.Thread(target=lambda: got.append(coordinator.acquire(key="b.example")))
        waiter.start()
        serve("--state", str(tmp_path), bind=first.url.removeprefix("http://"))
        waiter.join()
        assert got[0].key == "b.example" and got[0].state.name != permit.state.name
        assert permit.report(status=429).retry


def check(judged, pages):
    """Asserts that all pages were served, with few refusals for such short runs."""
    for name, host in judged.items():
        assert host["pages"] == pages, (name, host)
    refused = sum(host["refused"] for host in judged.values())
    assert refused <= 0.2 * sum(host["arrivals"] for host in judged.values()), judged


def test_asyncio_workers_get_every_page_of_limited_hosts(serve, town):
    hosts = town(slow=SLOW, window=WINDOW, slots=SLOTS, open=OPEN)
    url = serve("--profile", "api").url

    async def main():
        async with AsyncClient(url) as coordinator:
            transport = AsyncPoliteTransport(coordinator)
            async with httpx.AsyncClient(transport=transport, timeout=30.0) as client:
                pages = [f"{host}/page/{n}" for n in range(30) for host in hosts.urls.values()]
                return await asyncio.gather(*map(client.get, pages))

    assert {response.status_code for response in asyncio.run(main())} == {200}
    check(hosts.judge(), 30)


def test_threads_with_requests_get_every_page(serve, town):
    hosts = town(slow=SLOW, slots=SLOTS)
    with Client(serve().url) as coordinator, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", PoliteAdapter(coordinator))
        pages = [f"{host}/page/{n}" for n in range(10) for host in hosts.urls.values()]
        with ThreadPoolExecutor(8) as threads:
            statuses = {response.status_code for response in threads.map(session.get, pages)}
    assert statuses == {200}
    check(hosts.judge(), 10)


@pytest.mark.parametrize("way", ["client", "plain HTTP"])
def test_a_page_that_is_always_refused_is_told_from_its_host(serve, way):
    url = serve("--law", "fixed", "--rate", "200").url

    def by_client(page: str, **outcome) -> bool:
        return coordinator.acquire(page).report(**outcome).url_fault

    def by_http(page: str, **outcome) -> bool:
        def call(path: str, **body) -> dict:
            body |= {"client": "w1"}
            return httpx.post(f"{url}/api/v1/{path}", json=body, timeout=30).json()["items"][0]

        permit = call("acquire", wait_ms=20_000, items=[{"url": page}])["permit"]
        return call("report", items=[{"permit": permit, **outcome}]).get("url_fault", False)

    fetch = by_client if way == "client" else by_http
    with Client(url) as coordinator:
        faults = []
        for page in range(4):
            fetch(f"http://a.example/{page}", status=200)
            faults.append(fetch("http://a.example/bad", status=429, headers={"Retry-After": "1"}))
    assert faults == [False, True, True, True]


def test_the_example_runs(serve, town):
    hosts = town(slow=SLOW)
    script = Path(__file__).parents[1] / "examples/with_requests.py"
    pages = [f"{hosts.urls['slow']}/page/{n}" for n in range(5)]
    subprocess.run(
        [sys.executable, script, serve("--law", "fixed", "--rate", "4").url, *pages],
        check=True,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": SOURCES},
    )
    check(hosts.judge(), 5)


FORKS = """
import os, sys
from politely_client import Client
with Client(sys.argv[1]) as coordinator:
    coordinator.acquire(key="a.example").report(status=200)
    for _ in range(4):
        if os.fork() == 0:
            for _ in range(25):
                permit = coordinator.acquire(key="a.example")
                sys.stdout.write(permit.state.name + "\\n")
                permit.report(status=200)
            sys.stdout.flush()
            os._exit(0)
    sys.exit(any(os.wait()[1] for _ in range(4)))
"""


def test_forked_processes_share_it_and_no_connection(serve):
    """Processes that share a connection read each other's answers: permits come twice, and calls
    wait for ever.
    """
    url = serve("--law", "fixed", "--rate", "1000", "--burst", "100").url
    told = subprocess.run(
        [sys.executable, "-c", FORKS, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": SOURCES},
    )
    assert told.returncode == 0, told.stderr
    permits = told.stdout.split()
    assert len(permits) == len(set(permits)) == 100
