"""Reads the znodes of two coordinators with kazoo, as a program of another team would.

usage: zookeeper_peer.py SERVERS COORDINATOR

It ends with "all is well", or with the failed assertion.
"""

import json
import sys
import threading
import time
import urllib.request

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError

PATIENCE_S = 40
ROOT = "/politely"
KEY = "custom/seen-by-kazoo"


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def acquire(coordinator, number, key=KEY):
    body = {"client": "kazoo", "wait_ms": 10_000, "items": [{"id": str(number), "key": key}]}
    request = urllib.request.Request(
        f"{coordinator}/api/v1/acquire",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )

    def is_granted():
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["items"][0]["status"] == "granted"

    until(is_granted, "a permit")


def is_deleted(zookeeper):
    try:
        zookeeper.delete(ROOT, recursive=True)
        return True
    except NotEmptyError:  # A coordinator has just written.
        return False


def main(servers, coordinator):
    zookeeper = KazooClient(servers, auth_data=[("digest", "ann:secret")])
    zookeeper.start(timeout=PATIENCE_S)

    # Each coordinator is one ephemeral node.
    until(lambda: len(zookeeper.get_children(f"{ROOT}/members")) == 2, "two members")
    for name in zookeeper.get_children(f"{ROOT}/members"):
        pid, stat = zookeeper.get(f"{ROOT}/members/{name}")
        assert int(pid) > 0 and stat.ephemeralOwner == int(name, 16), (name, pid, stat)

    # The cell of a key is a persistent node whose name contains the key.
    acquire(coordinator, 1)
    names = zookeeper.get_children(f"{ROOT}/cells")
    (name,) = [name for name in names if "seen-by-kazoo" in name]
    path = f"{ROOT}/cells/{name}"
    value, stat = zookeeper.get(path)
    assert value[:1] in (b".", b"!") and len(value) > 17, value
    assert stat.ephemeralOwner == 0

    # A watch reports the change of the key.
    changed = threading.Event()
    zookeeper.get(path, watch=lambda event: event.type == "CHANGED" and changed.set())
    acquire(coordinator, 2)
    assert changed.wait(PATIENCE_S), "no watch"
    assert zookeeper.get(path)[1].version > stat.version

    # The nodes belong to the login of the coordinators.
    stranger = KazooClient(servers)
    stranger.start(timeout=PATIENCE_S)
    try:
        stranger.get(path)
        raise AssertionError("a stranger reads the cell")
    except NoAuthError:
        pass
    stranger.stop()

    print("sees two members", flush=True)
    until(lambda: len(zookeeper.get_children(f"{ROOT}/members")) == 1, "one member")

    # An operator deletes everything. The coordinator creates it again and goes on.
    until(lambda: is_deleted(zookeeper), "the nodes are deleted")
    until(lambda: zookeeper.exists(f"{ROOT}/run") is not None, "a new run")
    acquire(coordinator, 3, "custom/another")
    # The leases of the first key are not lost, because the coordinator remembers them.
    until(lambda: zookeeper.exists(path) is not None, "the old cell")
    zookeeper.stop()
    print("all is well", flush=True)


main(*sys.argv[1:])
