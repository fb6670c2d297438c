"""A priority queue that releases a request only when there is a permit for it."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue

from politely_client.scrapy.desk import Desk, group_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

NOT_BEFORE = "politely_not_before"
"""Field of a request's meta: the time before which it is not sent again, on this machine's
monotonic clock.
"""


class PermitFirstQueue(DownloaderAwarePriorityQueue):
    """The queue for SCHEDULER_PRIORITY_QUEUE.

    Within a group, requests leave in Scrapy's order. Among groups, they leave in the order of the
    permits.
    """

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: Any,
        key: str,
        slot_startprios: dict[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: Any = None,
    ) -> None:
        self._desk = Desk.of(crawler)
        self._chosen = ""
        self._later: list[tuple[float, int, Request]] = []
        self._count = 0
        super().__init__(
            crawler, downstream_queue_cls, key, slot_startprios, start_queue_cls=start_queue_cls
        )
        for group, queue in self.pqueues.items():
            self._desk.queued(group, len(queue))

    def push(self, request: Request) -> None:
        due = request.meta.get(NOT_BEFORE, 0.0)
        pause = due - time.monotonic()
        if pause > 0:
            self._count += 1
            heapq.heappush(self._later, (due, self._count, request))
            self._desk.wake(pause)
        else:
            self._push(request)

    def _push(self, request: Request) -> None:
        request.meta.pop(NOT_BEFORE, None)
        group = group_of(request)
        if group not in self.pqueues:
            self.pqueues[group] = self.pqfactory(group)
        self.pqueues[group].push(request)
        self._desk.queued(group)

    def pop(self) -> Request | None:
        while self._later and self._later[0][0] <= time.monotonic():
            self._push(heapq.heappop(self._later)[2])
        taken = self._desk.take(self.pqueues)
        if taken is None:
            return None
        self._chosen, permit = taken
        request = super().pop()
        self._desk.queued(self._chosen, -1)
        if request is not None:
            self._desk.hand(request, permit)
        return request

    def _next_slot(self, stats: list[tuple[int, str]], *, update_state: bool) -> str:
        return self._chosen

    def peek(self) -> Request | None:
        raise NotImplementedError("which request is next depends on the permits")

    def close(self) -> dict[str, list[int]]:
        for _, _, request in self._later:
            self._push(request)
        self._later.clear()
        return super().close()

    def __len__(self) -> int:
        return super().__len__() + len(self._later)
