"""Tests a worker without a coordinator: it goes on with its share, or stops."""

import signal
import threading
import time

import httpx
import pytest
from fake import Clock, Fake, granted, run

from politely_client import Client, Outcome, TimedOut, Unavailable, Wish
from politely_client.flow import Talk
from politely_client.share import Share

AWAY = httpx.ConnectError("nobody listens")
URL = "http://a.example/x"
SHARE = {"workers": 2, "place": 1, "clock_us": 5_000_000, "lasts_ms": 60_000}
LIMIT = {"rate": 4.0, "in_flight": 1000}


class Case:
    """A worker that was granted one permit, and whose coordinator is away since then."""

    def __init__(self, on_unavailable="share", limit=LIMIT, answers=4_000):
        first = granted() | ({"limit": limit} if limit else {})
        away = [AWAY] * answers
        self.fake = Fake(acquire=[(200, {"items": [first], "share": SHARE}), *away])
        self.clock = Clock()
        self.talk = Talk("w1", self.clock, lambda: 0.5, share=Share(on_unavailable))
        self.acquire()
        self.fake.script["report"] = list(away)

    def acquire(self, wait=None, **wish):
        return run(self.talk.acquire(Wish(url=URL, **wish), wait), self.fake, self.clock)


def test_a_worker_goes_on_with_its_turns_until_its_time_is_over():
    case = Case()
    began, left = case.clock(), []
    with pytest.raises(Unavailable):
        while case.clock() < began + 100:
            case.acquire(wait=5.0)
            left.append(case.clock() - began)
    # Turns of the second of two places at 4/s: a quarter and three quarters of a second.
    assert left[0] == pytest.approx(3.25, abs=0.01)
    assert {round(b - a, 3) for a, b in zip(left, left[1:])} == {0.5}
    assert 59 < left[-1] < 60


def test_a_worker_has_its_share_of_the_cap_in_flight():
    case = Case(limit={"rate": 4.0, "in_flight": 3})
    permit = case.acquire(wait=9.0)
    with pytest.raises(Unavailable):
        case.acquire(wait=5.0)
    run(case.talk.report([(permit, Outcome(status=200))]), case.fake, case.clock)
    case.acquire(wait=5.0)


@pytest.mark.parametrize(
    ("limit", "wish"),
    [(None, {}), (LIMIT, {"also": ("custom/a",)}), (LIMIT, {"cost": {"tokens": 9}}), (LIMIT, {"bytes": 9})],
)
def test_a_key_without_a_limit_and_a_request_with_further_limits_wait(limit, wish):
    with pytest.raises(Unavailable):
        Case(limit=limit).acquire(wait=9.0, **wish)


def test_a_refusal_ends_the_share_of_its_key():
    case = Case()
    permit = case.acquire()
    (next,) = run(case.talk.report([(permit, Outcome(status=429))]), case.fake, case.clock)
    assert next.what == "retry" and next.late
    with pytest.raises(Unavailable):
        case.acquire(wait=9.0)


def test_what_left_on_the_share_is_reported_with_its_request():
    case = Case()
    first, second = case.acquire(), case.acquire()
    run(case.talk.report([(first, Outcome(status=200))]), case.fake, case.clock)
    run(case.talk.cancel([second], sent=True), case.fake, case.clock)
    case.fake.script = {}
    case.fake.calls.clear()
    case.acquire()
    reported = {item["permit"]: item for item in case.fake.reports()}
    assert reported[first.name]["status"] == 200
    assert reported[first.name]["sent"] == {"url": URL}
    assert "status" not in reported[second.name]
    assert case.talk.share.later == []


def test_a_worker_that_does_not_wait_fails_at_once():
    case = Case(on_unavailable="stop")
    began = case.clock()
    with pytest.raises(Unavailable, match="nobody listens"):
        case.acquire()
    assert case.clock() == began


def test_a_worker_that_waits_tells_no_place_and_keeps_waiting():
    case = Case(on_unavailable="wait")
    with pytest.raises(Unavailable):
        case.acquire(wait=20.0)
    assert all("share" not in body for body in case.fake.of("acquire"))


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
