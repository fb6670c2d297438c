"""Costs in units that the transports of httpx and requests estimate and settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Used: TypeAlias = "Callable[[bytes], Mapping[str, int]]"
"""Reads the amounts of units that a request used from its body."""

BODY_USED_MAX = 16 << 20
"""The largest body of which `Used` is read, in bytes. A larger one counts as estimated."""


def asked_for(asked: Mapping[str, Any], request: Any, method: str) -> dict[str, Any]:
    """Returns the arguments of `Client.acquire` for one request.

    A ``cost`` that is a callable is called with the request.
    """
    cost = asked.get("cost")
    filled = {"method": method, **asked}
    if callable(cost):
        filled["cost"] = cost(request)
    return filled
