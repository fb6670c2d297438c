"""Tests a worker without a coordinator: it goes on with its share, or stops."""

import signal
import threading
import time

import httpx
import pytest

from politely_client import Client, TimedOut


def test_an_unknown_word_is_an_error():
    with pytest.raises(ValueError, match="on_unavailable"):
        Client("http://a", on_unavailable="go")  # type: ignore[arg-type]


def test_workers_keep_the_rate_while_the_coordinator_is_away_and_report_all(serve, tmp_path):
    rate, workers = 6.0, 2
    args = ("--state", str(tmp_path / "state"), "--allow-shares", "--profile", "api")
    args += ("--law", "fixed", "--rate", str(rate), "--burst", "1")
    first = serve(*args)
    until, left = time.monotonic() + 18, []

    def work(name):
        with Client(first.url, client=name, on_unavailable="share") as client:
            while (now := time.monotonic()) < until:
                try:
                    permit = client.acquire(key="a.example", wait=until - now)
                except TimedOut:
                    return
                left.append(time.monotonic())
                permit.report(status=200)

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(workers)]
    for thread in threads:
        thread.start()
    time.sleep(4)
    first.end(signal.SIGKILL)
    killed = time.monotonic()
    time.sleep(9)
    bind = first.url.removeprefix("http://")
    again = serve(*args, "--limits", "100000/day", bind=bind)
    back = time.monotonic()
    for thread in threads:
        thread.join()
    left.sort()
    shared = sum(killed + 1 < at < back for at in left)
    assert 28 <= shared <= 37, shared  # six of nine seconds
    for i, start in enumerate(left):
        for j in range(i, len(left)):
            # Burst 1, one more at the end of the window, and 50 ms for this machine's timers.
            most = 2 + rate * (left[j] - start + 0.05)
            assert j - i + 1 <= most, f"{j - i + 1} in {left[j] - start} s"
    key = httpx.get(f"{again.url}/api/v1/keys/a.example", trust_env=False).json()
    since = sum(at > killed for at in left)
    assert 100_000 - key["budgets"][0]["remaining"] >= since - 1
