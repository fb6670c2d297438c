"""Tests clients without the URL of a coordinator: the program starts one for the user."""

import asyncio
import contextlib
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import threading
import uuid

import httpx
import pytest
from conftest import REPOSITORY
from fake import Fake

from politely_client import AsyncClient, BadCall, Client, Unavailable, local
from politely_client.local import Place, program

PROGRAM = os.environ.get("POLITELY_BIN", str(REPOSITORY / "target/debug/politely"))
KEY = "custom/local"


class Machine:
    """A user's folder with the local coordinator of its clients."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def about(self) -> dict:
        (ready,) = self.folder.glob("politely/local-*/ready.json")
        return json.loads(ready.read_text())

    def kill(self) -> None:
        """Kills the coordinator and waits until it has ended."""
        os.kill(self.about()["pid"], signal.SIGKILL)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        (lock,) = self.folder.glob("politely/local-*/lock")
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    for name in ("POLITELY_COORDINATOR", "POLITELY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POLITELY_PROGRAM", PROGRAM)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(local, "RUN_EVERY", 0.0)
    machine = Machine(tmp_path)
    yield machine
    with contextlib.suppress(ValueError, ProcessLookupError):
        machine.kill()


def one_permit(client: Client) -> str:
    """Gets a permit of a new key, whose first request may leave at once. Returns the coordinator."""
    with client.permit(key=f"{KEY}-{uuid.uuid4()}", wait=30) as permit:
        permit.report(status=200)
    return client._places.current().base


def test_all_clients_of_a_user_share_one_coordinator(machine):
    with Client() as first, Client(client="second") as second:
        assert one_permit(first) == one_permit(second)
        assert one_permit(first) == f"{machine.about()['address']}/api/v1"


def test_calls_go_on_after_a_kill_and_declared_limits_survive(machine):
    with Client() as client:
        client.set_limits(KEY, limits=["7/h"])
        before = one_permit(client)
        machine.kill()
        after = one_permit(client)
        place = client._places.current()
        headers = {"authorization": f"Bearer {place.token}"}
        key = httpx.get(f"{after}/keys/custom%2Flocal", headers=headers).json()
    assert "7/h" in json.dumps(key["limits"]), key
    assert before != after


@pytest.mark.parametrize("on_unavailable", ["stop", "share"])
def test_a_client_that_does_not_wait_goes_on_after_a_kill_too(machine, on_unavailable):
    with Client(on_unavailable=on_unavailable) as client:
        one_permit(client)
        machine.kill()
        one_permit(client)


def test_a_coordinator_that_was_idle_is_started_again(machine):
    subprocess.run([PROGRAM, "local", "--exit-when-idle", "2s"], check=True, capture_output=True)
    with Client() as client:
        one_permit(client)
        machine.wait_for_end()
        one_permit(client)


def test_a_forked_process_shares_the_coordinator(machine):
    with Client() as client:
        base = one_permit(client)
        child = os.fork()
        if not child:
            os._exit(0 if one_permit(client) == base else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert one_permit(client) == base


def test_a_process_that_was_forked_while_the_program_ran_runs_it_itself(machine):
    place = local.Local()
    with place._lock:
        child = os.fork()
        if not child:
            os._exit(0 if place.find().token else 1)
        assert os.waitpid(child, 0)[1] == 0


def _in_a_process(_: int) -> str:
    with Client() as client:
        return one_permit(client)


def test_processes_that_start_at_once_share_one_coordinator(machine):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert len(set(pool.map(_in_a_process, range(3), chunksize=1))) == 1


def test_concurrent_calls_run_the_program_once(machine, monkeypatch):
    runs = []
    started = local.started
    monkeypatch.setattr(local, "started", lambda: runs.append(1) or started())

    async def main() -> None:
        async with AsyncClient() as client:
            await asyncio.gather(*(client.acquire(key=f"{KEY}-{i}") for i in range(8)))

    asyncio.run(main())
    assert len(runs) == 1
    with Client() as client:
        threads = [threading.Thread(target=one_permit, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(runs) == 2


@pytest.mark.parametrize("answer", [(401, {}), (404, {}, {"content-type": "text/html"}), httpx.ConnectError("refused")])
def test_an_answer_of_another_program_at_its_port_starts_it_again(monkeypatch, answer):
    monkeypatch.delenv("POLITELY_COORDINATOR", raising=False)
    monkeypatch.setattr(local, "RUN_EVERY", 0.0)
    places = [Place("http://b/api/v1", "new"), Place("http://a/api/v1", "old")]
    monkeypatch.setattr(local, "started", places.pop)
    fakes = {"a": Fake(acquire=[answer]), "b": Fake()}
    tokens = []

    def answer_of(request: httpx.Request) -> httpx.Response:
        tokens.append(request.headers["authorization"])
        return fakes[request.url.host](request)

    with Client(transport=httpx.MockTransport(answer_of)) as client:
        client.acquire(key=KEY)
    assert tokens == ["Bearer old", "Bearer new"]


def test_the_program_runs_at_most_once_a_second(machine, monkeypatch):
    monkeypatch.setattr(local, "RUN_EVERY", 1.0)
    place = local.Local()
    found = place.find()
    place.lost(found)
    assert place.known() == found, "it ran just now"
    monkeypatch.setattr(local.time, "monotonic", lambda: place._ran + 1.0)
    assert place.known() is None


def test_a_failure_to_start_it_again_is_passing_and_told(machine, monkeypatch):
    with Client() as client:
        one_permit(client)
        machine.kill()
        monkeypatch.setenv("POLITELY_PROGRAM", "/nowhere/politely")
        with pytest.raises(Unavailable, match="/nowhere/politely local"):
            client.acquire(key=KEY, wait=1.0)
        monkeypatch.setenv("POLITELY_PROGRAM", PROGRAM)
        one_permit(client)


def test_without_leave_for_a_local_one_a_client_needs_a_url(machine):
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="POLITELY_COORDINATOR"):
            kind(local=False)
    Client("127.0.0.1:7077", local=False).close()


def test_without_the_program_the_error_says_what_to_do(machine, monkeypatch):
    monkeypatch.setenv("POLITELY_PROGRAM", "/nowhere/politely")
    with Client() as client, pytest.raises(BadCall, match="/nowhere/politely local: .*Client"):
        client.acquire(key=KEY)
    monkeypatch.delenv("POLITELY_PROGRAM")
    monkeypatch.setattr(local.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BadCall, match="POLITELY_PROGRAM, or name a coordinator"):
        program()


def test_an_error_of_the_program_is_that_of_the_call(machine, monkeypatch):
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, "/dev/null")  # a read-only machine
    with Client() as client, pytest.raises(BadCall, match="no folder for a local coordinator"):
        client.acquire(key=KEY)
