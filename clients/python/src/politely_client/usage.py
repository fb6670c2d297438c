"""Readers of the usage that APIs of language models state.

The results name units, as `Permit.settle` and ``used`` take them:

>>> from politely_client import usage
>>> usage.openai({"usage": {"prompt_tokens": 40, "completion_tokens": 300, "total_tokens": 340}})
{'tokens': 340, 'input_tokens': 40, 'output_tokens': 300}
>>> usage.anthropic({"usage": {"input_tokens": 40, "output_tokens": 300}})
{'tokens': 340, 'input_tokens': 40, 'output_tokens': 300}

A reader accepts an answer of the SDK, its ``usage``, the same as a mapping, or the bytes of a body:
JSON, or the events of a stream. Without a usage the result is empty, and the estimate counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["anthropic", "openai"]


def openai(answer: Any) -> dict[str, int]:
    """Returns the tokens of a chat completion, a response or an embedding of OpenAI.

    In a stream, the last event with a usage counts (``stream_options={"include_usage": True}``).
    """
    found: dict[str, int] = {}
    for usage in _usages(answer):
        put = _number(usage, "prompt_tokens", "input_tokens")
        got = _number(usage, "completion_tokens", "output_tokens")
        total = _number(usage, "total_tokens")
        if total is None and put is None:
            continue
        put, got = put or 0, got or 0
        all_tokens = put + got if total is None else total
        found = {"tokens": all_tokens, "input_tokens": put, "output_tokens": got}
    return found


def anthropic(answer: Any) -> dict[str, int]:
    """Returns the tokens of a message of Anthropic.

    Tokens that were read from a cache do not count against the limit of input tokens. Those that
    were written into it do. In a stream, the largest number of each kind counts.
    """
    put: int | None = None
    got = 0
    for usage in _usages(answer):
        base = _number(usage, "input_tokens")
        if base is not None:
            written = _number(usage, "cache_creation_input_tokens") or 0
            put = max(put or 0, base + written)
        got = max(got, _number(usage, "output_tokens") or 0)
    if put is None:
        return {}
    return {"tokens": put + got, "input_tokens": put, "output_tokens": got}


def _usages(answer: Any) -> Iterator[Any]:
    """Yields the usage objects of an answer."""
    if isinstance(answer, (bytes, bytearray, str)):
        for each in _documents(answer):
            yield from _usages(each)
        return
    for holder in (answer, _get(answer, "message"), _get(answer, "response")):
        usage = _get(holder, "usage")
        if usage is not None:
            yield usage
            return
    yield answer


def _documents(body: bytes | bytearray | str) -> Iterator[Any]:
    """Yields the JSON of a body, or of each event of a stream."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:  # the end of a stream, or no JSON
            continue


def _get(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)


def _number(usage: Any, *names: str) -> int | None:
    for name in names:
        value = _get(usage, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
