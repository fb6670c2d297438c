"""Runs the scenarios that all clients share; `clients/conformance/README.md` describes them."""

import json
from pathlib import Path

import httpx
import pytest
from fake import Clock, Fake, granted, refused, run, told, wait

import politely_client
from politely_client import Outcome, Wish, usage
from politely_client.flow import Call, Talk
from politely_client.outcome import body_matters, evidence, headers_that_matter
from politely_client.share import Share

FOLDER = Path(__file__).parents[2] / "conformance"
EVIDENCE = json.loads((FOLDER / "evidence.json").read_text())


def scenarios():
    for name in ("acquire", "report", "share"):
        for scenario in json.loads((FOLDER / f"{name}.json").read_text()):
            yield pytest.param(scenario, id=scenario["name"])


def whole(item):
    """Returns an item of an answer with the fields that it lacks."""
    defaults = {"granted": granted, "wait": wait, "refused": refused}
    if "status" in item:
        return defaults.get(item["status"], lambda: {"item": 0})() | (
            {"reason": item["code"]} if "code" in item else {}
        ) | item
    return told(item["permit"]) | item


def answers(listed):
    for answer in listed:
        if isinstance(answer, int):
            yield from [httpx.ConnectError("nobody listens")] * answer
            continue
        body, status = answer["body"], answer.get("status", 200)
        for part in ("items", "report", "acquire"):
            if part in body:
                body[part] = [whole(item) for item in body[part]]
        headers = {"Retry-After": str(answer["retry_after_s"])} if "retry_after_s" in answer else {}
        if not answer.get("is_problem", True):
            headers["content-type"] = "application/json"
        yield status, body, headers


def seconds(fields):
    """Returns the fields of a call as Python names them: in seconds."""
    return {
        name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") else value
        for name, value in fields.items()
    }


def close_to(value):
    if isinstance(value, dict):
        return {name: close_to(each) for name, each in value.items()}
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


class Runner:
    def __init__(self, scenario):
        self.fake, self.clock = Fake(), Clock()
        self.fake.script = {path: list(answers(each)) for path, each in scenario.get("answers", {}).items()}
        share = Share(scenario.get("on_unavailable", "wait"))
        self.talk = Talk("w1", self.clock, lambda: scenario.get("chance", 0.5), share=share)
        self.stall, self.frozen = scenario.get("stall_ms", 0) / 1000, scenario.get("frozen", False)
        self.permits = {}

    def run(self, flow):
        """Runs a flow. A call without an answer takes its time-out if the coordinator is frozen."""
        return run(self._timed(flow) if self.frozen else flow, self.fake, self.clock, self._stall)

    def _stall(self):
        self.clock.now += self.stall

    def _timed(self, flow):
        reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                return end.value
            reply = yield step
            if isinstance(step, Call) and hasattr(reply, "why"):
                self.clock.now += step.timeout

    def outcomes(self, items):
        return [
            (self.permits[item["permit"]], Outcome(**seconds({k: v for k, v in item.items() if k != "permit"})))
            for item in items
        ]

    def step(self, step):
        """Returns the permits and the next steps of a call."""
        if "acquire" in step:
            fields = seconds(step["acquire"])
            wait = fields.pop("wait", None)
            fields["also"] = tuple(fields.pop("also", ()))
            return [self.run(self.talk.acquire(Wish(**fields), wait))], []
        if "acquire_any" in step:
            fields = step["acquire_any"]
            wishes = [Wish.of(target) for target in fields["targets"]]
            return self.run(self.talk.acquire_any(wishes, fields["n"], None)), []
        if "exchange" in step:
            fields = seconds(step["exchange"])
            wishes = [Wish.of(target) for target in fields["targets"]]
            flow = self.talk.exchange(self.outcomes(fields["told"]), wishes, 0, fields.get("wait"))
            nexts, permits = self.run(flow)
            return permits, nexts
        if "report" in step:
            return [], self.run(self.talk.report(self.outcomes(step["report"])))
        if "renew" in step:
            self.run(self.talk.renew([self.permits[name] for name in step["renew"]]))
        else:
            fields = step["cancel"]
            permits = [self.permits[name] for name in fields["permits"]]
            self.run(self.talk.cancel(permits, fields.get("sent", False)))
        return [], []


def check_gives(runner, step):
    permits, nexts = runner.step(step)
    for permit in permits:
        runner.permits[step.get("as", permit.name)] = permit
    given = step.get("gives", [])
    if permits and "gives" in step:
        assert [permit.name for permit in permits] == given
    for next, expected in zip(nexts, step.get("nexts", [] if permits else given), strict=True):
        assert vars(next) == vars(next) | close_to(seconds(expected))


def check_fails(runner, step):
    expected = seconds(step["fails"])
    with pytest.raises(getattr(politely_client, expected.pop("error"))) as said:
        runner.step(step)
    assert expected.pop("message", "") in str(said.value)
    assert vars(said.value) == vars(said.value) | expected


def matches(expected, body, ids):
    """Asserts that a body is as expected, where `$name` stands for an id."""
    if isinstance(expected, str) and expected.startswith("$"):
        assert ids.setdefault(expected, body) == body
    elif isinstance(expected, dict):
        assert isinstance(body, dict) and body.keys() == expected.keys(), (body, expected)
        for name, each in expected.items():
            matches(each, body[name], ids)
    elif isinstance(expected, list):
        assert len(body) == len(expected), (body, expected)
        for each, got in zip(expected, body, strict=True):
            matches(each, got, ids)
    else:
        assert body == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_scenario(scenario):
    runner = Runner(scenario)
    began = runner.clock()
    for step in scenario["steps"]:
        for _ in range(step.get("times", 1)):
            (check_fails if "fails" in step else check_gives)(runner, step)
        elapsed = 1000 * (runner.clock() - began)
        assert elapsed == pytest.approx(step.get("at_ms", elapsed), abs=10)
        assert elapsed <= step.get("until_ms", elapsed) + 1e-3
        for name, over in step.get("ended", {}).items():
            assert runner.permits[name].over == over, name
        for name, left in step.get("lease_left_ms", {}).items():
            assert 1000 * runner.permits[name].lease_left(runner.clock()) == pytest.approx(left)
    ids = {}
    for path, bodies in scenario.get("calls", {}).items():
        matches(bodies, runner.fake.of(path), ids)
    assert len(set(ids.values())) == len(ids)
    if "slept_ms" in scenario:
        assert [1000 * each for each in runner.clock.slept] == pytest.approx(scenario["slept_ms"])


@pytest.mark.parametrize("case", EVIDENCE["headers"])
def test_headers(case):
    assert headers_that_matter(case["given"], case["asked"]) == case["kept"]


def text(given):
    return given["repeated"] * given["times"] if isinstance(given, dict) else given


@pytest.mark.parametrize("case", EVIDENCE["body_start"])
def test_body_start(case):
    fields = evidence(case["status"], {}, text(case["body"]).encode(), case["asked"])
    assert fields["body_start"] == text(case["start"])
    assert body_matters(case["status"], case["asked"]) or case["start"] is None


@pytest.mark.parametrize("case", EVIDENCE["usage"], ids=lambda case: case["name"])
def test_usage(case):
    given = case["given"]
    read = getattr(usage, case["reader"])
    assert read(given) == case["used"]
    if isinstance(given, str):
        assert read(given.encode()) == case["used"]
