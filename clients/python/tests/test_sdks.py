"""Tests the official SDKs of OpenAI and Anthropic against played providers."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import anthropic
import httpx2
import openai
import pytest
from conftest import Running

from politely_client import Client, usage
from politely_client.httpx2 import PoliteTransport

QUESTION = [{"role": "user", "content": "How long is a piece of string?"}]


class Provider(Running):
    """A provider that `politely target` plays, and its preset as a policy for 127.0.0.1."""

    def __init__(self, name, folder):
        super().__init__("target", "--preset", name, "--json")
        self.url = self.first[0].split()[0]
        self.policy = folder / f"{name}.toml"
        self.policy.write_text(preset(name).replace(f"api.{name}.com", "127.0.0.1"))

    def judge(self):
        return json.loads(self.end())


def preset(name):
    from pathlib import Path

    return (Path(__file__).parents[3] / "presets" / f"{name}.toml").read_text()


@pytest.fixture
def play(tmp_path):
    started = []

    def start(name):
        started.append(Provider(name, tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def estimated(unit):
    """Returns an estimate that is a tenth of the truth, or ten times as much, in turn."""
    turns, lock = [0], threading.Lock()

    def cost(request):
        with lock:
            turns[0] += 1
            factor = 10 if turns[0] % 2 else 0.1
        body = json.loads(request.content)
        tokens = max(1, int(factor * body["max_tokens"]))
        return {"requests": 1, **{name: tokens for name in unit}}

    return cost


def test_the_openai_sdk_keeps_a_played_providers_limits(serve, play):
    provider = play("openai")
    coordinator = serve("--profile", "api", "--law", "fixed", "--rate", "1000",
                        "--in-flight", "64", "--policy", str(provider.policy))
    with Client(coordinator.url, client="w1") as client:
        transport = PoliteTransport(client, cost=estimated(["tokens"]), used=usage.openai)
        with httpx2.Client(transport=transport) as http:
            llm = openai.OpenAI(
                base_url=f"{provider.url}/v1", api_key="none", http_client=http, max_retries=0
            )

            def ask(_):
                return llm.chat.completions.create(model="m", messages=QUESTION, max_tokens=300)

            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(ask, range(120)))
    assert all(answer.usage.completion_tokens == 300 for answer in answers)
    report = provider.judge()
    assert (report["served"], report["refused"]) == (120, 0)
    limits = report["accounts"]["custom/openai"]
    assert all(limit["peak"] <= limit["quantity"] for limit in limits)
    settled = sum(answer.usage.total_tokens for answer in answers)
    assert next(limit["used"] for limit in limits if "tokens" in limit["limit"]) == settled


def test_the_anthropic_sdk_keeps_a_played_providers_limits(serve, play):
    provider = play("anthropic")
    coordinator = serve("--profile", "api", "--law", "fixed", "--rate", "1000",
                        "--in-flight", "64", "--policy", str(provider.policy))
    with Client(coordinator.url, client="w1") as client:
        units = ["input_tokens", "output_tokens"]
        transport = PoliteTransport(client, cost=estimated(units), used=usage.anthropic)
        with httpx2.Client(transport=transport) as http:
            llm = anthropic.Anthropic(
                base_url=provider.url, api_key="none", http_client=http, max_retries=0
            )

            def ask(_):
                return llm.messages.create(model="m", messages=QUESTION, max_tokens=50)

            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(ask, range(40)))
    assert all(answer.usage.output_tokens == 50 for answer in answers)
    report = provider.judge()
    assert (report["served"], report["refused"]) == (40, 0)
    assert all(limit["peak"] <= limit["quantity"] for limit in report["accounts"]["custom/anthropic"])
