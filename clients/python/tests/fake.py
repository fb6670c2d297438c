"""A fake coordinator with scripted answers, which records its calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | Exception


def granted(item: int = 0, permit: str = "p1", **more: Any) -> dict[str, Any]:
    return {
        "status": "granted",
        "item": item,
        "permit": permit,
        "key": "a.example",
        "start_in_ms": 0,
        "valid_for_ms": 500,
        "lease_ms": 120_000,
        "slots": 1,
        "interval_ms": 0.0,
    } | more


def wait(item: int = 0, retry_in_ms: int = 0, reason: str = "pace") -> dict[str, Any]:
    return {"status": "wait", "item": item, "retry_in_ms": retry_in_ms, "reason": reason, "position": 3}


def refused(item: int = 0, code: str = "parked", **more: Any) -> dict[str, Any]:
    return {"status": "refused", "item": item, "code": code, "reason": code} | more


def told(permit: str, next: Any = "done", **more: Any) -> dict[str, Any]:
    return {"permit": permit, "next": next, "rate": 2.0} | more


RETRY = {"retry": {"after_ms": 0, "free": True}}


class Fake:
    """Scripted answers by path, in turn. Without one, everything is granted and done."""

    def __init__(self, **script: list[Answer]) -> None:
        self.script = {path: list(answers) for path, answers in script.items()}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[httpx.Headers] = []
        self._count = 0

    def of(self, path: str) -> list[dict[str, Any]]:
        """Returns the bodies of the calls to `path`."""
        return [body for called, body in self.calls if called == path]

    def reports(self) -> list[dict[str, Any]]:
        return [item for body in self.of("report") for item in body["items"]]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1/")
        body = json.loads(request.content)
        self.calls.append((path, body))
        self.headers.append(request.headers)
        answers = self.script.get(path)
        answer = answers.pop(0) if answers else (200, getattr(self, path)(body))
        if isinstance(answer, Exception):
            raise answer
        status, said, *more = answer
        headers = {"content-type": "application/problem+json"} if status >= 400 else {}
        return httpx.Response(status, json=said, headers=headers | (more[0] if more else {}))

    def acquire(self, body: dict[str, Any]) -> dict[str, Any]:
        want = body.get("want", "all")
        n = len(body["items"]) if want == "all" else want["any"]
        first = self._count
        self._count += n
        return {"items": [granted(i, f"p{first + i + 1}") for i in range(n)]}

    def report(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"items": [told(item["permit"]) for item in body["items"]]}

    def exchange(self, body: dict[str, Any]) -> dict[str, Any]:
        report = self.report({"items": body["report"]})["items"]
        acquire = self.acquire({**body, "items": body["acquire"]})["items"]
        return {"report": report, "acquire": acquire}

    def renew(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "renewed": [{"permit": permit, "lease_ms": 120_000} for permit in body["permits"]],
            "lost": [],
        }

    def cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"cancelled": body["permits"], "lost": []}


class Clock:
    """Virtual time, which passes during sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def run(flow: Any, fake: Fake, clock: Clock, on_sleep: Callable[[], None] = lambda: None) -> Any:
    """Runs a flow to its end in virtual time."""
    from politely_client.flow import Call, NoReply
    from politely_client.shell import reply_of

    reply = None
    while True:
        try:
            step = flow.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(step, Call):
            request = httpx.Request("POST", f"http://fake/api/v1/{step.path}", json=step.body)
            try:
                reply = reply_of(fake(request), "http://fake")
            except httpx.TransportError as error:
                reply = NoReply(str(error))
        else:
            on_sleep()
            clock.sleep(step.seconds)
            reply = None
