"""Tests costs that transports estimate and settle, and the readers of usage."""

import contextlib
import io
import json

import httpx
import pytest
import requests
import urllib3
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


def events(*each, end="\n"):
    return "".join(f"event: x{end}data: {json.dumps(event)}{end}{end}" for event in each)


WORDS = {"choices": [{"delta": {"content": "a line\u2028another\x85third\x0b"}}]}
OPENAI_STREAM = events(WORDS, {"choices": [], **OPENAI}) + "data: [DONE]\n\n"
START = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
DELTA = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "words"}}
END = {"type": "message_delta", "usage": {"output_tokens": 77}}


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of parts. The connection then breaks off."""

    def __init__(self, *parts):
        self.parts = parts

    def __iter__(self):
        yield from self.parts
        raise httpx.ReadError("broken off")


ENDS = {
    "closed": (lambda lines, response: response.close(), None),
    "left": (lambda lines, response: None, None),
    "read": (lambda lines, response: list(lines), httpx.ReadError),
    "failed": (lambda lines, response: 1 / 0, ZeroDivisionError),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("sent", "tokens"), [((START, DELTA), None), ((START, DELTA, END), 86)])
def test_a_stream_settles_what_is_known_however_it_ends(how, sent, tokens):
    fake, (end, error) = Fake(), ENDS[how]
    body = events(*sent).encode()
    asked = {"cost": {"tokens": 4000}, "used": usage.anthropic}
    with client(fake, lambda _: httpx.Response(200, stream=Broken(body)), **asked) as http:
        with pytest.raises(error) if error else contextlib.nullcontext():
            with http.stream("POST", URL, json={}) as response:
                lines = response.iter_lines()
                next(lines)
                end(lines, response)
    assert fake.reports()[-1].get("used", {}).get("tokens") == tokens


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


def session(fake, monkeypatch, body):
    """Returns a session of requests whose host answers with the body."""
    coordinator = Client("http://fake", client="w1", transport=httpx.MockTransport(fake))

    def send(self, request, *_args, **_more):
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, request.url
        response.raw = urllib3.HTTPResponse(io.BytesIO(body), status=200, preload_content=False)
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    session = requests.Session()
    session.mount("http://", PoliteAdapter(coordinator, cost=estimate, used=usage.openai))
    return session


def test_requests_estimates_and_settles(monkeypatch):
    fake = Fake()
    with session(fake, monkeypatch, json.dumps(OPENAI).encode()) as http:
        assert http.post(URL, json={"max_tokens": 500}).json() == OPENAI
    (item,) = items(fake)
    assert item["cost"] == {"requests": 1, "tokens": 500}
    assert fake.reports()[0]["used"]["tokens"] == 340


def test_a_stream_of_requests_settles_what_came_of_it(monkeypatch):
    for lines, used in ((2, None), (9, 340)):
        fake = Fake()
        with session(fake, monkeypatch, OPENAI_STREAM.encode()) as http:
            with http.post(URL, json={"max_tokens": 500}, stream=True) as response:
                for _, _ in zip(range(lines), response.iter_lines(chunk_size=1)):
                    pass
        assert fake.reports()[-1].get("used", {}).get("tokens") == used


def test_a_transport_takes_a_constant_cost():
    fake = Fake()
    with client(fake, lambda _: httpx.Response(200), cost=3) as http:
        http.get(URL)
    assert items(fake)[0]["cost"] == 3
    assert isinstance(http._transport, PoliteTransport)
