"""Readers of the usage that APIs of language models state.

The results name units, as `Permit.settle` and ``used`` take them:

>>> from politely_client import usage
>>> usage.openai({"usage": {"prompt_tokens": 40, "completion_tokens": 300, "total_tokens": 340}})
{'tokens': 340, 'input_tokens': 40, 'output_tokens': 300}
>>> usage.anthropic({"usage": {"input_tokens": 40, "output_tokens": 300}})
{'tokens': 340, 'input_tokens': 40, 'output_tokens': 300}

A reader accepts an answer of the SDK, its ``usage``, the same as a mapping, or the bytes of a body:
JSON, or the events of a stream. Without a usage the result is empty, and the estimate counts. A
stream that ended early states its input only, since the numbers of output in its first event are
placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["anthropic", "openai"]


def openai(answer: Any) -> dict[str, int]:
    """Returns the tokens of a chat completion, a response or an embedding of OpenAI.

    In a stream, the last event with a usage counts (``stream_options={"include_usage": True}``).
    """
    found: dict[str, int] = {}
    for usage, event in _usages(answer):
        put = _number(usage, "prompt_tokens", "input_tokens")
        got = _number(usage, "completion_tokens", "output_tokens")
        total = _number(usage, "total_tokens")
        if total is None and put is None:
            continue
        put, got = put or 0, got or 0
        if event and not got:
            found = {"input_tokens": put}
            continue
        all_tokens = put + got if total is None else total
        found = {"tokens": all_tokens, "input_tokens": put, "output_tokens": got}
    return found


def anthropic(answer: Any) -> dict[str, int]:
    """Returns the tokens of a message of Anthropic.

    Tokens that were read from a cache do not count against the limit of input tokens. Those that
    were written into it do. In a stream, the largest number of each kind counts. The output is
    known once a ``message_delta`` has come.
    """
    put: int | None = None
    got: int | None = None
    for usage, event in _usages(answer):
        base = _number(usage, "input_tokens")
        if base is not None:
            written = _number(usage, "cache_creation_input_tokens") or 0
            put = max(put or 0, base + written)
        output = _number(usage, "output_tokens")
        if output is not None and event != "message_start":
            got = max(got or 0, output)
    if put is None:
        return {}
    if got is None:
        return {"input_tokens": put}
    return {"tokens": put + got, "input_tokens": put, "output_tokens": got}


_LINE_END = re.compile(r"\r\n|\r|\n")
"""The ends of lines of an event stream. A text may contain others, such as U+2028."""


def _usages(answer: Any) -> Iterator[tuple[Any, str]]:
    """Yields usage objects, each with the type of its event. The type is empty outside a stream."""
    if not isinstance(answer, (bytes, bytearray, str)):
        yield _usage_of(answer), ""
        return
    text = answer if isinstance(answer, str) else answer.decode("utf-8", "replace")
    events = list(_events(text))
    for document in events or [text]:
        try:
            read = json.loads(document)
        except ValueError:  # the end of a stream, or no JSON
            continue
        yield _usage_of(read), str(_get(read, "type") or "chunk") if events else ""


def _events(text: str) -> Iterator[str]:
    """Yields the data of each event. Several lines of data are one text."""
    data: list[str] = []
    for line in [*_LINE_END.split(text), ""]:
        if line.startswith("data:"):
            data.append(line[5:])
        elif not line and data:
            yield "\n".join(data)
            data = []


def _usage_of(answer: Any) -> Any:
    """Returns the usage in an answer or an event, or the answer if it is a usage itself."""
    for holder in (answer, _get(answer, "message"), _get(answer, "response")):
        usage = _get(holder, "usage")
        if usage is not None:
            return usage
    return answer


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
