"""Fixtures: a coordinator and limited hosts, from the built binary on free ports of loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]


class Running:
    """A `politely` process and the first lines of its output."""

    def __init__(self, *args: str, lines: int = 1) -> None:
        binary = os.environ.get("POLITELY_BIN", REPOSITORY / "target/debug/politely")
        environment = {k: v for k, v in os.environ.items() if k != "POLITELY_TOKEN"}
        self.process = subprocess.Popen(
            [binary, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stderr
        self.first = [self.process.stderr.readline() for _ in range(lines)]
        assert all(self.first), f"{args} ended"
        # A full pipe would block the process.
        self._reader = threading.Thread(target=self.process.stderr.read)
        self._reader.start()

    def end(self, how: int = signal.SIGINT) -> str:
        """Ends the process and returns its standard output."""
        self.process.send_signal(how)
        assert self.process.stdout and self.process.stderr
        out = self.process.stdout.read()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return out


class Serve(Running):
    def __init__(self, *args: str, bind: str = "127.0.0.1:0", lines: int = 1) -> None:
        kept = () if "--state" in args else ("--memory",)
        super().__init__("serve", "--bind", bind, *kept, *args, lines=lines)
        self.url = self.first[0].split()[-1]
        assert self.url.startswith("http"), self.first


class Town(Running):
    """Hosts with known limits, and the judge's report at their end."""

    def __init__(self, folder: Path, **hosts: dict) -> None:
        spec = folder / "town.json"
        spec.write_text(json.dumps({"hosts": [{"name": name} | host for name, host in hosts.items()]}))
        self._log = folder / "log.jsonl"
        log = ("--log", str(self._log))
        super().__init__("target", str(spec), "--json", *log, lines=len(hosts))
        self.urls = dict(zip(hosts, (line.split()[0] for line in self.first), strict=True))

    def judge(self) -> dict[str, dict]:
        return {host["host"]: host for host in json.loads(self.end())["hosts"]}

    def arrivals(self) -> list[str]:
        """Returns the hosts of all requests in order. Call it after `judge`."""
        return [entry["host"] for entry in self._entries()]

    def pages_came(self) -> list[float]:
        """Returns the times of requests for pages, in seconds. Call it after `judge`."""
        return sorted(e["arrived_us"] / 1e6 for e in self._entries() if e["page"] is not None)

    def _entries(self) -> list[dict]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def serve():
    started = []

    def start(*args: str, **more: Any) -> Serve:
        started.append(Serve(*args, **more))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.fixture
def town(tmp_path):
    started = []

    def start(**hosts: dict) -> Town:
        started.append(Town(tmp_path, **hosts))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)
