"""Tests costs that transports estimate and settle, and the readers of usage."""

import json

import httpx
import pytest
import requests
from fake import Fake

from politely_client import Client, usage
from politely_client.httpx import PoliteTransport
from politely_client.requests import PoliteAdapter
from test_transports import URL, both, client, fetch_async

OPENAI = {"usage": {"prompt_tokens": 40, "completion_tokens": 300, "total_tokens": 340}}
ANTHROPIC = {
    "usage": {
        "input_tokens": 40,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 900,
        "output_tokens": 300,
    }
}


def test_readers_take_bodies_mappings_and_objects():
    class Usage:
        input_tokens, output_tokens = 7, 8
        cache_creation_input_tokens = None

    class Answer:
        usage = Usage()

    assert usage.openai(json.dumps(OPENAI).encode())["tokens"] == 340
    assert usage.openai(OPENAI["usage"])["output_tokens"] == 300
    assert usage.openai({"usage": {"prompt_tokens": 8, "total_tokens": 8}})["tokens"] == 8
    assert usage.anthropic(ANTHROPIC) == {
        "tokens": 350,
        "input_tokens": 50,
        "output_tokens": 300,
    }
    assert usage.anthropic(Answer()) == {"tokens": 15, "input_tokens": 7, "output_tokens": 8}


def test_readers_take_the_events_of_a_stream():
    chunks = [{"choices": []}, {"choices": [], **OPENAI}]
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    assert usage.openai(events.encode())["tokens"] == 340
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    end = {"type": "message_delta", "usage": {"output_tokens": 77}}
    events = "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in (start, end))
    assert usage.anthropic(events.encode()) == {
        "tokens": 86,
        "input_tokens": 9,
        "output_tokens": 77,
    }


@pytest.mark.parametrize("nothing", [b"", b"no json", b"[]", {}, None, {"usage": {"total": 3}}])
def test_readers_find_nothing_in_other_answers(nothing):
    assert usage.openai(nothing) == {} and usage.anthropic(nothing) == {}


def estimate(request):
    body = json.loads(request.content if isinstance(request, httpx.Request) else request.body)
    return {"requests": 1, "tokens": body["max_tokens"]}


def items(fake):
    return [item for path, body in fake.calls if path == "acquire" for item in body["items"]]


@both
def test_httpx_estimates_and_settles(fetch):
    fake = Fake()
    asked = {"cost": estimate, "used": usage.openai}

    def provider(_):
        return httpx.Response(200, json=OPENAI)

    if fetch is fetch_async:
        import asyncio

        from politely_client import AsyncClient
        from politely_client.httpx import AsyncPoliteTransport

        async def main():
            mock = httpx.MockTransport(fake)
            async with AsyncClient("http://fake", client="w1", transport=mock) as coordinator:
                inner = httpx.MockTransport(provider)
                transport = AsyncPoliteTransport(coordinator, inner, **asked)
                async with httpx.AsyncClient(transport=transport) as http:
                    return await http.post(URL, json={"max_tokens": 500})

        response = asyncio.run(main())
    else:
        with client(fake, provider, **asked) as http:
            response = http.post(URL, json={"max_tokens": 500})
    assert response.json() == OPENAI
    (item,) = items(fake)
    assert (item["cost"], item["method"]) == ({"requests": 1, "tokens": 500}, "POST")
    (report,) = fake.reports()
    assert report["used"] == {"tokens": 340, "input_tokens": 40, "output_tokens": 300}


def test_a_reader_that_fails_loses_no_page():
    fake = Fake()

    def wrong(_):
        raise RuntimeError("no reader")

    with client(fake, lambda _: httpx.Response(200, text="page"), used=wrong) as http:
        assert http.get(URL).text == "page"
    (report,) = fake.reports()
    assert "used" not in report


def test_requests_estimates_and_settles(monkeypatch):
    fake = Fake()
    coordinator = Client("http://fake", client="w1", transport=httpx.MockTransport(fake))

    def send(self, request, *_args, **_more):
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, request.url
        response._content = json.dumps(OPENAI).encode()
        response._content_consumed = True
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with requests.Session() as session:
        session.mount("http://", PoliteAdapter(coordinator, cost=estimate, used=usage.openai))
        assert session.post(URL, json={"max_tokens": 500}).json() == OPENAI
    (item,) = items(fake)
    assert item["cost"] == {"requests": 1, "tokens": 500}
    assert fake.reports()[0]["used"]["tokens"] == 340


def test_a_transport_takes_a_constant_cost():
    fake = Fake()
    with client(fake, lambda _: httpx.Response(200), cost=3) as http:
        http.get(URL)
    assert items(fake)[0]["cost"] == 3
    assert isinstance(http._transport, PoliteTransport)
