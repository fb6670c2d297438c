"""Tests which calls are made and when, in virtual time."""

import json

import httpx
import pytest
from fake import RETRY, Clock, Fake, granted, refused, run, told, wait

from politely_client import Unavailable, BadCall, Outcome, Refused, TimedOut, Wish
from politely_client.bodies import Grant
from politely_client.flow import Call, NoReply, Talk
from politely_client.state import PermitState

AWAY = httpx.ConnectError("nobody listens")


class Case:
    def __init__(self, chance=0.5, **script):
        self.fake, self.clock = Fake(**script), Clock()
        self.talk = Talk("w1", self.clock, lambda: chance)

    def run(self, flow, **more):
        return run(flow, self.fake, self.clock, **more)

    def acquire(self, wait=None, **wish):
        return self.run(self.talk.acquire(Wish(url="http://a.example/x", **wish), wait))

    def permit(self, **grant):
        return PermitState(Grant.read(Wish(key="a.example"), granted(**grant), self.clock()))


def test_a_wish_keeps_its_id_from_poll_to_poll():
    case = Case(acquire=[(200, {"items": [wait(retry_in_ms=200)]}), (200, {"items": [granted()]})])
    permit = case.acquire()
    first, second = case.fake.of("acquire")
    assert first["items"] == second["items"] and first["items"][0]["id"]
    assert first["wait_ms"] == 30_000 and case.clock.slept == [0.2]
    assert permit.name == "p1" and permit.key == "a.example"


def test_a_crawl_delay_is_told_each_time():
    case = Case(acquire=[(200, {"items": [wait(retry_in_ms=200)]}), (200, {"items": [granted()]})])
    case.acquire(crawl_delay=0.5, crawl_delay_fresh=60)
    for body in case.fake.of("acquire"):
        (item,) = body["items"]
        assert (item["crawl_delay_ms"], item["crawl_delay_fresh_ms"]) == (500, 60_000)


def test_a_far_wait_is_asked_for_again_before_its_place_is_forgotten():
    far = (200, {"items": [wait(retry_in_ms=100_000, reason="hold, Retry-After")]})
    case = Case(acquire=[far, far, (200, {"items": [granted()]})])
    case.acquire()
    assert case.clock.slept == [45.0, 45.0]


def test_the_callers_time_bounds_the_poll_and_the_wait():
    case = Case(acquire=[(200, {"items": [wait(retry_in_ms=6_000, reason="quarantine")]})])
    with pytest.raises(TimedOut, match="quarantine") as said:
        case.acquire(wait=5.0)
    assert said.value.retry_in == 6.0 and said.value.position == 3
    assert case.fake.of("acquire")[0]["wait_ms"] == 5_000
    assert case.clock.slept == []  # the wait would be useless


@pytest.mark.parametrize("seconds", [0.0, 2.0, 10.0])
def test_a_coordinator_that_never_answers_keeps_the_caller_little_longer_than_its_wait(seconds):
    case, reply, spent = Case(), None, 0.0
    flow = case.talk.acquire(Wish(url="http://a.example/x"), seconds)
    with pytest.raises(Unavailable):
        while True:
            step = flow.send(reply)
            takes = step.timeout if isinstance(step, Call) else step.seconds
            reply = NoReply("frozen") if isinstance(step, Call) else None
            case.clock.sleep(takes)
            spent += takes
    assert spent <= seconds + 2.0


def test_wait_zero_asks_once():
    case = Case(acquire=[(200, {"items": [wait(retry_in_ms=1)]})])
    with pytest.raises(TimedOut):
        case.acquire(wait=0.0)
    assert [body["wait_ms"] for body in case.fake.of("acquire")] == [0]


def test_the_start_is_slept_until():
    case = Case(acquire=[(200, {"items": [granted(start_in_ms=700)]})])
    permit = case.acquire()
    assert case.clock.slept == [pytest.approx(0.7)]
    assert permit.may_start(case.clock())


def test_who_oversleeps_gives_the_permit_back_and_asks_anew():
    case = Case(acquire=[(200, {"items": [granted(start_in_ms=10, valid_for_ms=50)]})])

    def stall():
        case.clock.now += 0.1

    permit = case.run(case.talk.acquire(Wish(key="a.example"), None), on_sleep=stall)
    first, second = case.fake.of("acquire")
    assert case.fake.of("cancel") == [{"client": "w1", "permits": ["p1"]}]
    assert first["items"][0]["id"] != second["items"][0]["id"]
    assert permit.may_start(case.clock())


def test_a_coordinator_that_is_away_is_asked_again_under_the_same_id():
    case = Case(acquire=[AWAY, (500, {}), (503, {}, {"Retry-After": "2"})])
    case.acquire()
    calls = case.fake.of("acquire")
    assert len(calls) == 4 and len({body["items"][0]["id"] for body in calls}) == 1
    assert case.clock.slept == pytest.approx([0.05, 0.1, 2.2])


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


def test_backoff_is_full_jitter_below_a_second():
    case = Case(chance=1.0, acquire=[AWAY] * 9)
    case.acquire()
    assert case.clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1, 1])


def test_nothing_is_granted_while_the_coordinator_is_away():
    case = Case(chance=1.0, acquire=[AWAY] * 99)
    with pytest.raises(Unavailable, match="the coordinator is unavailable: nobody listens"):
        case.acquire(wait=3.0)
    assert case.clock() <= 103.0


def test_a_refusal_says_why_and_until_when():
    case = Case(acquire=[(200, {"items": [refused(retry_in_ms=60_000)]})])
    with pytest.raises(Refused, match="parked") as said:
        case.acquire()
    assert said.value.retry_in == 60.0


def test_a_closing_coordinator_is_waited_for():
    case = Case(acquire=[(200, {"items": [refused(code="closing")]}), AWAY])
    case.acquire()
    assert len({body["items"][0]["id"] for body in case.fake.of("acquire")}) == 1


def test_a_permit_that_was_granted_unheard_and_is_gone_is_wished_for_anew():
    case = Case(acquire=[AWAY, (200, {"items": [refused(code="id_used")]})])
    case.acquire()
    ids = [body["items"][0]["id"] for body in case.fake.of("acquire")]
    assert ids[0] == ids[1] != ids[2]


def test_a_wrong_call_names_the_field():
    problem = {"type": "about:blank", "title": "Bad Request", "status": 400}
    case = Case(acquire=[(400, problem | {"detail": "too long", "field": "client"})])
    with pytest.raises(BadCall, match="client: too long"):
        case.acquire()
    error = {"status": "error", "item": 0, "error": {"field": "url", "detail": "no host"}}
    case = Case(acquire=[(200, {"items": [error]})])
    with pytest.raises(BadCall, match="http://a.example/x: url: no host"):
        case.acquire()
    case = Case(acquire=[(401, {"title": "Unauthorized"})])
    with pytest.raises(BadCall, match="Unauthorized"):
        case.acquire()


WRONG = {"status": "error", "item": 1, "error": {"field": "url", "detail": "scheme"}}
TWO = [Wish.of("a.example"), Wish.of("ftp://bad/")]


@pytest.mark.parametrize("call", ["exchange", "acquire_any", "grants"])
def test_what_was_granted_beside_a_wrong_wish_is_given_back(call):
    """Otherwise its slot would stay taken until the lease ends."""
    case = Case(
        exchange=[(200, {"report": [], "acquire": [WRONG, granted(0)]})],
        acquire=[(200, {"items": [WRONG, granted(0)]})],
    )
    flow = {
        "exchange": lambda: case.talk.exchange([], TWO, 0, None),
        "acquire_any": lambda: case.talk.acquire_any(TWO, 2, None),
        "grants": lambda: case.talk.grants(TWO, 0, 999.0),
    }[call]()
    with pytest.raises(BadCall, match="ftp://bad/: url: scheme"):
        case.run(flow)
    assert case.fake.of("cancel") == [{"client": "w1", "permits": ["p1"]}]


def test_what_was_granted_before_the_time_was_up_is_given_back():
    """Otherwise its slot would stay taken until the lease ends."""
    answer = {"items": [granted(0), wait(1, retry_in_ms=6_000)]}
    case = Case(acquire=[(200, answer)], exchange=[(200, {"report": [], "acquire": answer["items"]})])
    for flow in (case.talk.grants(TWO, 0, 105.0), case.talk.exchange([], TWO, 0, 5.0)):
        with pytest.raises(TimedOut, match="pace"):
            case.run(flow)
    assert [body["permits"] for body in case.fake.of("cancel")] == [["p1"], ["p1"]]


def test_a_wrong_report_takes_no_other_with_it():
    """The later reports count, and the permits that were granted with them are given back."""
    error = {"permit": "p1", "error": {"field": "status", "detail": "from 100"}}
    report = [error, told("p2")]
    case = Case(
        report=[(200, {"items": report})],
        exchange=[(200, {"report": report, "acquire": [granted(0, "p3")]})],
    )
    for call in ("report", "exchange"):
        wrong, right = case.permit(), case.permit(permit="p2")
        pairs = [(wrong, Outcome(status=42)), (right, Outcome(status=200))]
        with pytest.raises(BadCall, match="status: from 100"):
            if call == "report":
                case.run(case.talk.report(pairs))
            else:
                case.run(case.talk.exchange(pairs, [Wish.of("a.example")], 0, None))
        assert right.over and not wrong.over
    assert [body["permits"] for body in case.fake.of("cancel")] == [["p3"]]


def block_pages(case, n, **more):
    outcome = Outcome(status=403, body_start="\ufffd" * 16_384, **more)
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


def test_nothing_to_say_is_not_said():
    """The coordinator refuses an empty call: "items: must not be empty"."""
    case = Case()
    assert case.run(case.talk.report([])) == []
    case.run(case.talk.renew([]))
    case.run(case.talk.cancel([], sent=False))
    assert case.fake.calls == []


def test_secrets_in_urls_stay_here():
    case = Case()
    case.run(case.talk.acquire(Wish(url="https://me:pw@a.example:81/x?token=1#f"), None))
    assert case.fake.of("acquire")[0]["items"][0]["url"] == "https://a.example:81/x"


def test_any_of_many_takes_the_first_and_waits_for_the_rest():
    case = Case(acquire=[(200, {"items": [], "retry_in_ms": 40}), (200, {"items": [granted(1)]})])
    wishes = [Wish.of("http://a.example/"), Wish.of("b.example")]
    (permit,) = case.run(case.talk.acquire_any(wishes, 1, None))
    assert permit.target == "b.example" and case.clock.slept == [0.04]
    first, second = case.fake.of("acquire")
    assert first["want"] == {"any": 1} and first["items"] == second["items"]


def test_any_of_many_leaves_out_who_was_refused():
    script = [(200, {"items": [refused(0)]}), (200, {"items": [granted(0)]})]
    case = Case(acquire=script)
    (permit,) = case.run(case.talk.acquire_any([Wish.of("a.example"), Wish.of("b.example")], 1, None))
    assert permit.target == "b.example"
    assert len(case.fake.of("acquire")[1]["items"]) == 1
    case = Case(acquire=[(200, {"items": [refused(0), refused(1)]})])
    with pytest.raises(Refused):
        case.run(case.talk.acquire_any([Wish.of("a.example"), Wish.of("b.example")], 1, None))


def test_exchange_reports_once_and_waits_with_acquire():
    exchanged = {"report": [told("p1")], "acquire": [wait(retry_in_ms=100)]}
    case = Case(exchange=[AWAY, (200, exchanged)], acquire=[(200, {"items": [granted(0, "p2")]})])
    done = [(case.permit(), Outcome(status=200, latency=0.1))]
    nexts, permits = case.run(case.talk.exchange(done, [Wish.of("a.example")], 0, None))
    assert [next.what for next in nexts] == ["done"] and [each.name for each in permits] == ["p2"]
    first, second = case.fake.of("exchange")
    assert first == second
    assert case.fake.of("acquire")[0]["items"] == first["acquire"]


def test_a_report_is_repeated_and_says_what_is_next():
    answer = told("p1", {"give_up": {"reason": "status 404"}}, hold_ms=1500)
    case = Case(report=[AWAY, (200, {"items": [answer]})])
    permit = case.permit()
    case.clock.now += 0.25
    (next,) = case.run(case.talk.report([(permit, Outcome(status=404))]))
    assert (next.what, next.reason, next.hold, next.rate) == ("give_up", "status 404", 1.5, 2.0)
    assert case.fake.reports()[0] == {"permit": "p1", "status": 404, "latency_ms": 250.0}
    assert permit.over


def test_a_refused_request_is_told_from_a_failed_one():
    case = Case(
        report=[
            (200, {"items": [told("p1", RETRY)]}),
            (200, {"items": [told("p1", {"retry": {"after_ms": 800}})]}),
        ]
    )
    (refused,) = case.run(case.talk.report([(case.permit(), Outcome(status=429))]))
    (failed,) = case.run(case.talk.report([(case.permit(), Outcome(error="reset"))]))
    assert refused.retry and refused.free
    assert failed.retry and not failed.free and failed.after == 0.8


@pytest.mark.parametrize(
    ("outcome", "what"),
    [
        (Outcome(status=429), "retry"),
        (Outcome(error="timeout"), "retry"),
        (Outcome(status=200), "done"),
        (Outcome(status=404), "done"),
        (Outcome(status=429, method="POST"), "done"),
        (Outcome(status=429, attempt=5), "done"),
    ],
)
def test_where_the_coordinator_forgot_the_permit_no_page_is_lost(outcome, what):
    case = Case(report=[(200, {"items": [told("p1", late=True)]})])
    (next,) = case.run(case.talk.report([(case.permit(), outcome)]))
    assert next.what == what and next.late


def test_renewing_counts_from_the_asking():
    case = Case(renew=[AWAY, (200, {"renewed": [{"permit": "p1", "lease_ms": 1000}], "lost": []})])
    permit, asked = case.permit(), case.clock()
    case.run(case.talk.renew([permit]))
    assert permit.lease_until == asked + 1.0 < case.clock() + 1.0


def test_what_is_over_is_not_cancelled():
    case = Case()
    permit = case.permit()
    case.run(case.talk.report([(permit, Outcome(status=200))]))
    case.run(case.talk.cancel([permit], sent=False))
    assert case.fake.of("cancel") == []


def test_departures_are_one_interval_apart():
    grant = Grant.read(Wish(key="a.example"), granted(slots=3, interval_ms=250.0), 10.0)
    assert [PermitState(grant, slot).start for slot in range(3)] == [10.0, 10.25, 10.5]
    assert PermitState(grant, 2).lease_until == 130.5
