"""Compares the memory of a coordinator whose `/metrics` are not read with another's.

Two coordinators serve as many waits as the callers can make, some 500 a second each. One of them is
scraped every five seconds.

usage: python3 benches/unscraped.py [MINUTES] [BINARY]   (default: 60 target/dist/politely)

Prints the resident memory of both every minute, and their ratio at the end. Python's standard
library is enough.
"""

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

MINUTES = float(sys.argv[1]) if len(sys.argv) > 1 else 60
BINARY = sys.argv[2] if len(sys.argv) > 2 else "target/dist/politely"
RATE, CALLERS, ITEMS = 1000, 8, 32
SCRAPE_S = 5


class Coordinator:
    def __init__(self):
        law = ["--law", "fixed", "--rate", str(RATE), "--burst", "1", "--in-flight", "10000"]
        command = [BINARY, "serve", "--bind", "127.0.0.1:0", "--profile", "api", "--memory", *law]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)", self.process.stderr.readline())[1])
        self.waits = [0] * CALLERS
        for caller in range(CALLERS):
            threading.Thread(target=self.call, args=(caller,), daemon=True).start()

    def call(self, caller):
        """Exchanges the reports of the last permits for new permits, which have to wait."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        reports = []
        while True:
            items = [{"key": "a.example"}] * ITEMS
            body = {"client": f"w{caller}", "report": reports, "acquire": items, "wait_ms": 30_000}
            connection.request("POST", "/api/v1/exchange", json.dumps(body), {"content-type": "application/json"})
            answer = json.load(connection.getresponse())
            granted = [item["permit"] for item in answer["acquire"] if "permit" in item]
            reports = [{"permit": permit, "status": 200, "latency_ms": 10} for permit in granted]
            self.waits[caller] += len(granted)

    def rss_kb(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def scrape(self):
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            connection.close()
            time.sleep(SCRAPE_S)


def main():
    scraped, unscraped = Coordinator(), Coordinator()
    threading.Thread(target=scraped.scrape, daemon=True).start()
    began = time.monotonic()
    print("| minute | scraped, kB | not scraped, kB | waits a second, each |")
    print("| --- | --- | --- | --- |")
    try:
        while (now := time.monotonic() - began) < MINUTES * 60:
            time.sleep(60 - now % 60)
            now = time.monotonic() - began
            waits = [f"{sum(one.waits) / now:.0f}" for one in (scraped, unscraped)]
            print(f"| {now / 60:.0f} | {scraped.rss_kb()} | {unscraped.rss_kb()} | {', '.join(waits)} |", flush=True)
        print(f"not scraped against scraped: {unscraped.rss_kb() / scraped.rss_kb():.3f}")
    finally:
        scraped.process.kill()
        unscraped.process.kill()


main()
