#!/usr/bin/env python3
"""Measures what watches a fleet: the lag of listeners, and the size of the audit.

    benches/watching.py listener [SECONDS]    holds of 2,000 keys a second at one coordinator, and a
                                              reader of events at another one on the same Redis
    benches/watching.py zookeeper [SECONDS]   the same on three ZooKeeper servers
    benches/watching.py audit [KEYS]          an hour of all these hosts, each fetched by one of two
                                              workers, on disk; 30 days are 720 such hours

It needs target/dist/politely, and redis-server or Debian's zookeeper.
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
BINARY = os.environ.get("POLITELY_BIN", str(ROOT / "target/dist/politely"))
EVENTS_PER_S = 2_000
BATCH = 20
ITEMS_MAX = 1_000
REDIS_PORT = 7392
# Each server has three ports from here on: for clients, for its peers, and for elections.
ENSEMBLE_PORT = 7393
JAR = "/usr/share/java/zookeeper.jar"
HOURS = 30 * 24
# Statuses and their weights.
STATUSES = ((200, 404, 429, 503), (90, 4, 3, 3))


def start(*args):
    """Starts a coordinator, and returns the process and a connection to it."""
    command = [BINARY, "serve", "--bind", "127.0.0.1:0", "--profile", "api", "--law", "fixed",
               "--rate", "100000", "--burst", "1000", "--in-flight", "1000", *args]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    place = urlsplit(process.stderr.readline().split()[-1])
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, lambda: http.client.HTTPConnection(place.hostname, place.port)


def end(process):
    process.send_signal(signal.SIGINT)
    process.wait()


def call(connection, path, body):
    connection.request(
        "POST", f"/api/v1/{path}", json.dumps(body), {"content-type": "application/json"}
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        sys.exit(f"{path}: {answer}")
    return answer


def acquire(connection, client, keys):
    items = [{"key": key} for key in keys]
    answers = call(connection, "acquire", {"client": client, "items": items})["items"]
    return [answer["permit"] for answer in answers if answer["status"] == "granted"]


def read_events(connection, came):
    """Notes when the hold of each key arrives."""
    connection.request("GET", "/api/v1/events?kind=hold")
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data:"):
            came.setdefault(json.loads(line[5:])["key"], time.monotonic())


def redis(folder):
    """Starts a redis-server, and returns its URL and its process."""
    command = ["redis-server", "--port", str(REDIS_PORT), "--save", "", "--dir", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    return f"redis://127.0.0.1:{REDIS_PORT}", [server]


def ensemble(folder):
    """Starts three ZooKeeper servers, and returns their URL and their processes."""
    ports = [range(first, first + 3) for first in range(ENSEMBLE_PORT, ENSEMBLE_PORT + 9, 3)]
    peers = [f"server.{i}=127.0.0.1:{p[1]}:{p[2]}" for i, p in enumerate(ports, 1)]
    servers = []
    for number, (client, _, _) in enumerate(ports, 1):
        data = Path(folder, str(number))
        data.mkdir()
        (data / "myid").write_text(str(number))
        lines = ["tickTime=500", "initLimit=40", "syncLimit=10", f"dataDir={data}",
                 f"clientPort={client}", "admin.enableServer=false", *peers]
        (data / "zoo.cfg").write_text("\n".join(lines))
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                   "-Dzookeeper.forceSync=no", "-cp", JAR,
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(data / "zoo.cfg")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        servers.append(subprocess.Popen(command, **quiet))
    time.sleep(10)  # the servers elect a leader
    return "zookeeper://" + ",".join(f"127.0.0.1:{client}" for client, _, _ in ports), servers


def listener(engine, seconds):
    with tempfile.TemporaryDirectory() as folder:
        url, servers = engine(folder)
        store = ("--store", url)
        (one, to_one), (other, to_other) = start(*store), start(*store)
        time.sleep(5)  # in a new epoch, no permits are granted for a short time
        came, sent = {}, {}
        threading.Thread(target=read_events, args=(to_other(), came), daemon=True).start()
        connection = to_one()
        keys = [f"h{i}.example.com" for i in range(EVENTS_PER_S * seconds)]
        batches = []
        for first in range(0, len(keys), BATCH):
            of = keys[first : first + BATCH]
            batches.append((of, acquire(connection, "w", of)))
        began = time.monotonic()
        for number, (of, permits) in enumerate(batches):
            time.sleep(max(0, began + number * BATCH / EVENTS_PER_S - time.monotonic()))
            refusal = {"status": 429, "headers": {"retry-after": "60"}}
            told = [{"permit": permit, **refusal} for permit in permits]
            now = time.monotonic()
            sent.update((key, now) for key in of)
            call(connection, "report", {"client": "w", "items": told})
        took = time.monotonic() - began
        time.sleep(2)
        end(one)
        end(other)
        for server in servers:
            server.terminate()
            server.wait()
    lags = sorted(came[key] - at for key, at in sent.items() if key in came)
    p50, p99 = (lags[len(lags) * share // 100] * 1000 for share in (50, 99))
    print(f"{engine.__name__}: {len(sent) / took:.0f} events/s, {len(sent) - len(lags)} lost, "
          f"lag from the report to another coordinator's reader p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def audit(count):
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        process, to = start("--state", folder)
        connection = to()
        name = lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 14)))
        keys = [f"www.{name()}.{rng.choice(('com', 'org', 'de', 'co.uk'))}" for _ in range(count)]
        for turn, client in enumerate(("worker-1", "worker-2")):
            mine = keys[turn::2]
            for first in range(0, len(mine), ITEMS_MAX):
                of = [key for key in mine[first : first + ITEMS_MAX] for _ in range(rng.randint(1, 9))]
                permits = []
                for part in range(0, len(of), ITEMS_MAX):
                    permits += acquire(connection, client, of[part : part + ITEMS_MAX])
                told = [
                    {"permit": permit, "status": status, "latency_ms": rng.randint(5, 500),
                     "bytes": rng.randint(300, 60_000)}
                    for permit, status in zip(permits, rng.choices(*STATUSES, k=len(permits)))
                ]
                for part in range(0, len(told), ITEMS_MAX):
                    call(connection, "report", {"client": client, "items": told[part : part + ITEMS_MAX]})
        end(process)
        files = list((Path(folder) / "usage").iterdir())
        size = max(file.stat().st_size for file in files)
    print(f"audit: {count} rows of an hour take {size / 1e6:.2f} MB, {size / count:.1f} B each; "
          f"{HOURS} such hours {size * HOURS / 1e9:.2f} GB")


if __name__ == "__main__":
    number = int(sys.argv[2]) if len(sys.argv) > 2 else None
    match sys.argv[1:2]:
        case ["listener"]:
            listener(redis, number or 10)
        case ["zookeeper"]:
            listener(ensemble, number or 10)
        case ["audit"]:
            audit(number or 100_000)
        case _:
            sys.exit(__doc__)
