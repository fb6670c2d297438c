"""Tests which calls are made and when, in virtual time: the cases that are not in the scenarios of
all clients.
"""

import json

import httpx
import pytest
from fake import Clock, Fake, granted, run, told

from politely_client import Outcome, Unavailable, Wish
from politely_client.bodies import Grant
from politely_client.flow import Talk
from politely_client.state import PermitState

AWAY = httpx.ConnectError("nobody listens")


class Case:
    def __init__(self, chance=0.5, **script):
        self.fake, self.clock = Fake(**script), Clock()
        self.talk = Talk("w1", self.clock, lambda: chance)

    def run(self, flow):
        return run(flow, self.fake, self.clock)

    def acquire(self):
        return self.run(self.talk.acquire(Wish(url="http://a.example/x"), None))

    def permit(self, **grant):
        return PermitState(Grant.read(Wish(key="a.example"), granted(**grant), self.clock()))


def test_an_outage_is_logged_again_at_a_bounded_rate(caplog):
    caplog.set_level("INFO", "politely_client")
    case = Case(chance=1.0, acquire=[AWAY] * 99)
    case.acquire()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"the coordinator is unavailable for {secs} s"
        " (nobody listens); nothing leaves; trying again"
        for secs in (0, 30, 60, 90)
    ] + ["the coordinator is available again after 96 s"]
    caplog.clear()
    # Another call of the same client soon fails again.
    case.fake.script["acquire"] = [AWAY]
    case.acquire()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["the coordinator is available again after 0 s"]


def block_pages(case, n):
    outcome = Outcome(status=403, body_start="\ufffd" * 16_384)
    return [(case.permit(permit=f"p{i}"), outcome) for i in range(n)]


def test_reports_are_no_larger_than_the_coordinator_takes():
    """One call with 400 block pages would be more than 6 MiB, and the coordinator would refuse all
    of it.
    """
    case = Case()
    pages = block_pages(case, 400)
    assert len(case.run(case.talk.report(pages))) == 400
    bodies = case.fake.of("report")
    assert [item["permit"] for body in bodies for item in body["items"]] == [f"p{i}" for i in range(400)]
    assert len(bodies) > 1 and max(len(json.dumps(body)) for body in bodies) < 4 << 20
    assert all(permit.over for permit, _ in pages)

    case = Case()
    assert len(case.run(case.talk.report(short(case, 5_000)))) == 5_000
    assert [len(body["items"]) for body in case.fake.of("report")] == [4_096, 904]


def short(case, n):
    return [(case.permit(permit=f"p{i}"), Outcome(status=200)) for i in range(n)]


def test_an_exchange_has_room_for_its_wishes():
    """The coordinator would refuse a larger exchange as a whole."""
    case = Case()
    pages = block_pages(case, 100)
    nexts, permits = case.run(case.talk.exchange(pages, [Wish.of("a.example")], 0, None))
    assert len(nexts) == 100 and len(permits) == 1
    (exchange,) = case.fake.of("exchange")
    assert len(case.fake.reports()) + len(exchange["report"]) == 100
    assert len(json.dumps(exchange)) < 3 << 20


def test_a_report_too_far_takes_none_before_it_back():
    case = Case(report=[(200, {"items": [told("")] * 4_096})] + [AWAY] * 999)
    pages = short(case, 4_100)
    with pytest.raises(Unavailable):
        case.run(case.talk.report(pages))
    assert [permit.over for permit, _ in pages] == [True] * 4_096 + [False] * 4


def test_departures_are_one_interval_apart():
    grant = Grant.read(Wish(key="a.example"), granted(slots=3, interval_ms=250.0), 10.0)
    assert [PermitState(grant, slot).start for slot in range(3)] == [10.0, 10.25, 10.5]
    assert PermitState(grant, 2).lease_until == 130.5
