#!/usr/bin/env python3
"""Units of ten pages a second that one coordinator hands out and takes back over HTTP.

    redis-server --port 6399 --save '' &
    benches/units.py target/dist/politely redis://127.0.0.1:6399 8

Arguments: the program, an empty engine that may be filled, seconds. Eight connections take 64
units a call, and report all of their pages in one `done`.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

CONNECTIONS, UNITS, DOMAINS, PAGES = 8, 64, 30_000, 20
LIMITS = ["--law=fixed", "--rate=1000", "--burst=100", "--in-flight=100"]
ROOM = ["--capacity=200000", "--client-keys=200000"]


def call(connection, name, body, kind="application/json"):
    path = f"/api/v1/frontier/units/{name}"
    connection.request("POST", path, body, {"content-type": kind})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return text


def work(connect, worker, until, done):
    connection, client = connect(), f"worker-{worker}"
    while time.monotonic() < until:
        take = {"client": client, "units": UNITS, "pages_per_unit": 10, "wait_ms": 1000}
        units = json.loads(call(connection, "take", json.dumps(take)))["units"]
        words = [{"token": unit["token"], "pages": pages(unit)} for unit in units]
        body = json.dumps({"client": client, "units": words})
        answers = json.loads(call(connection, "done", body))["units"]
        assert not any(answer.get("error") for answer in answers), answers
        done[worker] += len(units)


def pages(unit):
    report = {"permit": unit["grant"]["permit"], "status": 200}
    return [
        {"url": page["url"], "report": report | {"slot": slot}}
        for slot, page in enumerate(unit["pages"])
    ]


def main():
    program, engine, seconds = os.path.abspath(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = [program, "serve", f"--bind=127.0.0.1:{port}", f"--store={engine}", "--frontier"]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([*serve, *LIMITS, *ROOM], cwd=folder, stderr=subprocess.DEVNULL)
        try:
            measure(lambda: http.client.HTTPConnection("127.0.0.1", port), seconds)
        finally:
            server.terminate()
            server.wait()


def measure(connect, seconds):
    while True:
        try:
            connection = connect()
            connection.connect()
            break
        except OSError:
            time.sleep(0.05)
    for first in range(0, DOMAINS, 500):
        urls = (
            f"https://www.example-{domain}.com/a/path/of/usual/length/{page}.html"
            for domain in range(first, first + 500)
            for page in range(PAGES)
        )
        lines = "\n".join(json.dumps({"url": url}) for url in urls)
        call(connection, "put", lines, "application/x-ndjson")
    began, done = time.monotonic(), [0] * CONNECTIONS
    threads = [
        threading.Thread(target=work, args=(connect, worker, began + seconds, done))
        for worker in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(done) / (time.monotonic() - began):.0f} units a second, by worker: {done}")


if __name__ == "__main__":
    main()
