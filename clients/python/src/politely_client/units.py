"""Costs in units that the transports of httpx and requests estimate and settle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from politely_client.state import PermitView

log = logging.getLogger("politely_client")

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


def settle(permit: PermitView, used: Used | None, body: Callable[[], bytes]) -> None:
    """Sets the amounts that ``used`` reads from a body.

    An error of the reader loses neither the page nor its report: the estimate counts.
    """
    if used is None or permit.state.over:
        return
    try:
        permit.settle(**used(body()))
    except Exception as why:
        log.warning("%s: its use could not be read: %s", permit.key, why)
