#!/usr/bin/env python3
"""Takes the pictures in docs/screens/: a coordinator, a small fleet that crawls hosts with hidden limits, and Chromium.

    cargo build -p politely-cli && python3 docs/screens.py [MINUTES]

The fleet works for some minutes first (default 8), so that there is a past to show. The hosts are played by the workers
themselves: nothing is fetched.
"""

import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "screens"
CHROMIUM = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper", "karst", "lagoon"]


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def said(process, text):
    for line in process.stdout:
        if text in line:
            return line.strip()
    raise SystemExit(f"{process.args[0]} never said {text!r}")


def start(*command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Host:
    """A token bucket that answers 429 when it is empty, and now and then is slow or broken."""

    def __init__(self, name, seed):
        draw = random.Random(seed)
        self.name, self.rate = name, draw.choice([0.5, 1, 2, 3, 5, 8])
        self.broken, self.slow = draw.random() < 0.06, draw.uniform(0.04, 0.25)
        self.tokens, self.at, self.lock = 3.0, time.monotonic(), threading.Lock()

    def answer(self):
        with self.lock:
            now = time.monotonic()
            self.tokens = min(3.0, self.tokens + (now - self.at) * self.rate)
            self.at = now
            latency_ms = random.lognormvariate(0, 0.4) * self.slow * 1000
            if self.broken and random.random() < 0.7:
                return {"status": 503, "latency_ms": latency_ms}
            if self.tokens < 1:
                return {"status": 429, "headers": {"Retry-After": "3"}, "latency_ms": latency_ms}
            self.tokens -= 1
            return {"status": 200, "latency_ms": latency_ms}


def work(api, name, hosts, ended):
    report, draw = [], random.Random(name)
    by_name = {host.name: host for host in hosts}
    while not ended.is_set():
        wanted = [{"key": host.name} for host in draw.sample(hosts, 64)] + [{"key": hosts[0].name}] * 2
        body = {"client": name, "wait_ms": 500, "want": {"any": 12}, "report": report, "acquire": wanted}
        answer = call("POST", f"{api}/exchange", body)
        granted = sorted((item for item in answer["acquire"] if item["status"] == "granted"), key=lambda item: item["start_in_ms"])
        report, asked = [], time.monotonic()
        for grant in granted:
            time.sleep(max(asked + grant["start_in_ms"] / 1000 - time.monotonic(), 0))
            report.append({"permit": grant["permit"], **by_name[grant["key"]].answer()})
        time.sleep(0.1)


class Browser:
    def __init__(self, driver, profile):
        options = {"args": [*CHROMIUM, f"--user-data-dir={profile}"]}
        asked = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        session = call("POST", f"{driver}/session", asked)["value"]["sessionId"]
        self.url = f"{driver}/session/{session}"

    def ask(self, method, path, body=None):
        return call(method, f"{self.url}/{path}".rstrip("/"), body)["value"]

    def tool(self, command, **params):
        self.ask("POST", "goog/cdp/execute", {"cmd": command, "params": params})

    def size(self, width, height):
        self.tool("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def theme(self, name):
        self.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        self.ask("POST", "url", {"url": url})
        time.sleep(4)

    def picture(self, name):
        time.sleep(0.5)
        picture = base64.b64decode(self.ask("GET", "screenshot"))
        (OUT / f"{name}.png").write_bytes(picture)
        print(f"docs/screens/{name}.png: {len(picture) // 1000} kB")


def take(browser, address, key):
    browser.size(1180, 660)
    browser.theme("light")
    browser.open(f"{address}/")
    time.sleep(60)  # until the totals have a past
    browser.picture("keys-light")
    browser.theme("dark")
    browser.picture("keys-dark")
    browser.theme("light")
    browser.size(1280, 1000)
    browser.open(f"{address}/#/key/{key}")
    browser.picture("key")
    browser.size(390, 844)
    browser.open("about:blank")
    browser.open(f"{address}/")
    browser.picture("phone")


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    OUT.mkdir(exist_ok=True)
    serve = start(str(ROOT / "target" / "debug" / "politely"), "serve", "--memory", "--bind=127.0.0.1:0", "--profile=api")
    driver = start("chromedriver", "--port=0")
    ended = threading.Event()
    try:
        address = said(serve, "politely: http").removeprefix("politely: ")
        api = f"{address}/api/v1"
        names = [f"{one}-{two}.example" for one in WORDS for two in WORDS if one != two]
        hosts = [Host(name, name) for name in names]
        hosts[0].rate, hosts[0].broken = 5, False
        call("PATCH", f"{api}/keys/{names[5]}", {"hold_ms": 3_600_000})
        call("PATCH", f"{api}/keys/{names[9]}", {"rate": 1.5, "in_flight": 2})
        for i in range(6):
            threading.Thread(target=work, args=(api, f"crawler-{i}", hosts, ended), daemon=True).start()
        time.sleep(minutes * 60)
        port = said(driver, "started successfully on port").rstrip(".").rsplit(" ", 1)[1]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(f"http://127.0.0.1:{port}", profile)
            try:
                take(browser, address, names[0])
            finally:
                browser.ask("DELETE", "")
    finally:
        ended.set()
        serve.terminate()
        driver.terminate()


if __name__ == "__main__":
    main()
