"""Splits the words about a unit of work into calls that the coordinator accepts.

A page may have 50,000 links, as many as a sitemap may have. The links go before the outcomes, so a
worker that dies in between loses none: its page returns to the queue and is visited again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from politely_client.bodies import Json

BYTES_MAX = 2 << 20
"""Maximum bytes of the words in one call: half of the coordinator's maximum, since an exchange has
other fields."""
ELEMENTS_MAX = 5_000
"""Maximum number of pages and links in one call."""


def in_parts(words: Json) -> list[Json]:
    """Returns words that say the same in order. All but the last keep the unit."""
    parts: list[Json] = []
    room = 0
    for kind in ("found", "pages"):
        for element in words[kind]:
            size = len(json.dumps(element)) + 2  # in ASCII, the longest encoding
            if not parts or size > room or _length(parts[-1]) == ELEMENTS_MAX:
                parts.append(_part(words["token"], keep=True))
                room = BYTES_MAX
            room -= size
            parts[-1][kind].append(element)
    if not parts:
        return [_part(words["token"], keep=False)]
    del parts[-1]["keep"]
    return parts


def halves(words: Json) -> Iterator[Json]:
    """Yields two halves of words that the coordinator refused, or what is left of a single element.

    A page whose outcome was refused is finished, because the same would be refused at each visit.
    """
    elements = [(kind, each) for kind in ("found", "pages") for each in words[kind]]
    middle, keep = len(elements) // 2, "keep" in words
    if middle:
        yield _of(words["token"], elements[:middle], keep=True)
        yield _of(words["token"], elements[middle:], keep=keep)
    elif elements:
        visited = [page["url"] for page in words["pages"] if "report" in page]
        finished = [("pages", {"url": url, "then": "finish"}) for url in visited]
        if finished or not keep:
            yield _of(words["token"], finished, keep=keep)


def _of(token: int, elements: list[tuple[str, Json]], *, keep: bool) -> Json:
    part = _part(token, keep=keep)
    for kind, element in elements:
        part[kind].append(element)
    return part


def _part(token: int, *, keep: bool) -> Json:
    part: Json = {"token": token, "found": [], "pages": []}
    if keep:
        part["keep"] = True
    return part


def _length(part: Json) -> int:
    return len(part["found"]) + len(part["pages"])
