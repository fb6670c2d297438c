"""Tests of locks against a running coordinator."""

import asyncio
import signal
import threading

import httpx
import pytest

from politely_client import AsyncClient, Client, LockLost, TimedOut


def waiting(url: str, key: str) -> int:
    return httpx.get(f"{url}/api/v1/locks", params={"key": key}).json()["waiting"]


@pytest.mark.parametrize("at_once", [1, 2])
def test_at_most_so_many_tasks_hold_a_key_at_once(serve, at_once):
    async def run() -> None:
        holders, most, numbers = 0, 0, []
        async with AsyncClient(serve().url) as coordinator:

            async def job() -> None:
                nonlocal holders, most
                async with coordinator.lock("example.com", max=at_once) as lock:
                    holders += 1
                    most = max(most, holders)
                    numbers.append(lock.fencing)
                    await asyncio.sleep(0.02)
                    holders -= 1
                    assert not lock.lost

            await asyncio.gather(*(job() for _ in range(6)))
        assert most == at_once
        assert len(set(numbers)) == 6
        # The answers to two locks that are granted together may arrive in either order.
        assert at_once > 1 or numbers == sorted(numbers)

    asyncio.run(run())


def test_a_lock_that_is_not_free_in_time_leaves_the_queue(serve):
    url = serve().url
    with Client(url) as coordinator:
        entered = threading.Event()

        def other() -> None:
            with coordinator.lock("example.com", exclusive=True):
                entered.set()

        thread = threading.Thread(target=other)
        with coordinator.lock("example.com") as held:
            with pytest.raises(TimedOut, match="locked"), coordinator.lock("example.com", wait=0.0):
                pass
            assert waiting(url, "example.com") == 0
            assert held.fencing > 0 and held.key == "example.com"
            thread.start()
            while waiting(url, "example.com") != 1:
                pass
            assert not entered.is_set()
        thread.join()
        assert entered.is_set()


def test_a_lost_lock_cancels_the_work(serve):
    async def run() -> None:
        server = serve()
        async with AsyncClient(server.url) as coordinator:
            with pytest.raises(LockLost):
                async with coordinator.lock("example.com", ttl=1.0) as lock:
                    server.end(signal.SIGKILL)
                    await asyncio.sleep(60)
            assert lock.lost

    asyncio.run(run())
