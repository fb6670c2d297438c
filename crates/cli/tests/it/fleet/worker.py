"""The worker of worker.rs once more, in Python. usage: worker.py ORDERS"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import httpx

from politely_client import Client, PolitelyError, Refused, TimedOut, TooLate, Wish

ORDERS = json.loads(Path(sys.argv[1]).read_text())
NOTES = os.open(ORDERS["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(what: str, url: str, permit: str = "", status: int = 0) -> None:
    line = {"at_us": time.time_ns() // 1000, "what": what, "url": url, "permit": permit, "status": status}
    os.write(NOTES, json.dumps(line).encode() + b"\n")  # one write: a kill leaves the line or none


def end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


class Jobs:
    """What is left to do, by host."""

    def __init__(self) -> None:
        lines = Path(ORDERS["notes"]).read_text().splitlines()
        got = {told["url"] for told in map(json.loads, lines) if told["what"] == "got"}
        self.lock = threading.Lock()
        self.left = 0
        self.hosts: dict[str, list[dict]] = {}
        for url in ORDERS["urls"]:
            if url not in got:
                self.left += 1
                job = {"wish": Wish(url=url), "attempt": 1, "free": 0, "not_before": 0.0}
                self.hosts.setdefault(url.split("/")[2], []).append(job)

    def take(self) -> list[dict]:
        with self.lock:
            now = time.monotonic()
            return [jobs.pop(0) for jobs in self.hosts.values() if jobs and jobs[0]["not_before"] <= now]

    def give_back(self, jobs: list[dict]) -> None:
        with self.lock:
            for job in jobs:
                self.hosts[job["wish"].url.split("/")[2]].insert(0, job)


def lane(coordinator: Client, jobs: Jobs) -> None:
    with httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=None)) as pages:
        while jobs.left:
            offer = jobs.take()
            try:
                permits = coordinator.acquire_any([job["wish"] for job in offer], wait=ORDERS["wait_ms"] / 1000) if offer else []
            except (TimedOut, Refused):
                permits = []
            by_url = {job["wish"].url: job for job in offer}
            taken = [(permit, by_url.pop(permit.target)) for permit in permits]
            jobs.give_back(list(by_url.values()))
            for permit, job in taken:
                use(pages, permit, job, jobs)
            if not taken:
                time.sleep(0.02)


def use(pages: httpx.Client, permit, job: dict, jobs: Jobs) -> None:
    url, name = permit.target, permit.state.name
    note("granted", url, name)
    try:
        permit.begin()
    except TooLate:
        note("stale", url, name)
        job["wish"] = job["wish"].again()
        return jobs.give_back([job])
    counted = {"attempt": job["attempt"], "free": job["free"]}
    response = None
    try:
        response = pages.get(url, timeout=permit.lease_left)
    except httpx.TransportError as error:
        note("aborted", url, name)
        heard = permit.failed(error, **counted)
    else:
        if response.status_code == 200:
            note("got", url, name, 200)
        heard = permit.report(response, **counted)
    status = response.status_code if response is not None else 0
    note("heard_late" if heard.late else "heard", url, name, status)
    if status == 200 or not (heard.retry or heard.late):
        if status != 200:
            note("given_up", url, name, status)
        with jobs.lock:
            jobs.left -= 1
        return
    job["wish"] = job["wish"].again()
    job["attempt"] += 1
    job["free"] += heard.free
    job["not_before"] = time.monotonic() + heard.after
    jobs.give_back([job])


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    jobs = Jobs()
    urls = ["http://" + address for address in [ORDERS["coordinator"], *ORDERS["others"]]]
    with Client(urls, client=ORDERS["client"]) as coordinator:
        failed = []

        def run() -> None:
            try:
                lane(coordinator, jobs)
            except BaseException as error:
                failed.append(error)
                os.write(2, repr(error).encode())
                os._exit(1)

        lanes = [threading.Thread(target=run) for _ in range(ORDERS["lanes"])]
        for one in lanes:
            one.start()
        for one in lanes:
            one.join()


main()
