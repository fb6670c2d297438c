#!/usr/bin/env python3
"""Measures declared limits that several processes share, by the servers' own counts.

    benches/budgets.py account [SECONDS]   50 hosts under one account of 50/s: 8 workers that speak
                                           plain HTTP to 2 coordinators on one Redis
    benches/budgets.py tokens [SECONDS]    500 requests and 200,000 tokens a minute of a played
                                           provider, for 8 processes whose estimates are ten times
                                           too large or too small

It needs target/dist/politely, redis-server, and the packages of clients/python.
"""

import http.client
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "clients/python/src"))
BINARY = os.environ.get("POLITELY_BIN", str(ROOT / "target/dist/politely"))
WORKERS = 8
HOSTS = 50


def start(*args, lines=1):
    """Starts politely, and returns the process and the first lines that it says."""
    process = subprocess.Popen(
        [BINARY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, [process.stderr.readline() for _ in range(lines)]


def end(process):
    process.send_signal(signal.SIGINT)
    return process.communicate()[0]


def call(connection, path, body):
    connection.request(
        "POST", f"/api/v1/{path}", json.dumps(body), {"content-type": "application/json"}
    )
    return json.loads(connection.getresponse().read())


def account_worker(number, coordinator, hosts, ends):
    """Acquires, sends and reports, each host in turn."""
    place = urlsplit(coordinator)
    talk = http.client.HTTPConnection(place.hostname, place.port)
    to, turn, name = {}, number, f"w{number}"
    while time.time() < ends:
        host = hosts[turn % len(hosts)]
        turn += WORKERS + 1
        asked = {"client": name, "wait_ms": 5_000, "items": [{"url": f"{host}/page/1"}]}
        (answer,) = call(talk, "acquire", asked)["items"]
        if answer["status"] != "granted":
            continue
        time.sleep(answer["start_in_ms"] / 1000)
        began = time.monotonic()
        if host not in to:
            to[host] = http.client.HTTPConnection(urlsplit(host).hostname, urlsplit(host).port)
        to[host].request("GET", f"/page/{turn % 10}")
        response = to[host].getresponse()
        response.read()
        told = {
            "permit": answer["permit"],
            "status": response.status,
            "latency_ms": 1000 * (time.monotonic() - began),
        }
        call(talk, "report", {"client": name, "items": [told]})


def account(seconds):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        redis = subprocess.Popen(
            ["redis-server", "--port", "7391", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(0.5)
        town = {"hosts": [{"name": f"h{i}", "limit": {"kind": "none"}} for i in range(HOSTS)]}
        (folder / "town.json").write_text(json.dumps(town))
        log = folder / "log.jsonl"
        target, said = start("target", str(folder / "town.json"), "--log", str(log), lines=HOSTS)
        hosts = [line.split()[0] for line in said]
        names = json.dumps([urlsplit(host).hostname for host in hosts])
        policy = folder / "rules.toml"
        policy.write_text(f'[[rule]]\nmatch = {names}\naccount = "all"\nlimits = ["50/s"]\n')
        shared = ("--store", "redis://127.0.0.1:7391", "--profile", "api", "--rate", "1000",
                  "--law", "fixed", "--in-flight", "100")
        both = [
            start("serve", "--bind", "127.0.0.1:0", *shared, *more)
            for more in (("--policy", str(policy)), ())
        ]
        urls = [said[0].split()[-1] for _, said in both]
        time.sleep(2.5)  # the second coordinator reads the policy of the first
        ends = time.time() + seconds
        workers = [
            multiprocessing.Process(target=account_worker, args=(i, urls[i % 2], hosts, ends))
            for i in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for process, _ in both:
            end(process)
        end(target)
        redis.terminate()
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        came = sorted(entry["arrived_us"] / 1e6 for entry in entries if entry["page"] is not None)
    most, first = 0, 0
    for last, at in enumerate(came):
        while came[first] <= at - 1.0:
            first += 1
        most = max(most, last - first + 1)
    length = came[-1] - came[0]
    print(f"account: {len(came)} requests in {length:.1f} s = {len(came) / length:.2f}/s, "
          f"at most {most} in any second")


def tokens_worker(number, coordinator, provider, ends, results):
    import httpx

    from politely_client import Client, usage
    from politely_client.httpx import PoliteTransport

    rng = random.Random(number)

    def cost(request):
        factor = rng.choice((10, 0.1))
        truth = json.loads(request.content)["max_tokens"]
        return {"requests": 1, "tokens": max(1, int(truth * factor))}

    refused = 0
    with Client(coordinator, client=f"w{number}") as client:
        transport = PoliteTransport(client, cost=cost, used=usage.openai, wait=90)
        with httpx.Client(transport=transport, timeout=60) as http:
            while time.time() < ends:
                body = {"model": "m", "max_tokens": rng.randint(200, 600), "messages": []}
                answer = http.post(f"{provider}/v1/chat/completions", json=body)
                refused += answer.status_code == 429
    results.put(refused)


def tokens(seconds):
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "openai.toml"
        text = (ROOT / "presets/openai.toml").read_text()
        policy.write_text(text.replace("api.openai.com", "127.0.0.1"))
        target, said = start("target", "--preset", "openai", "--json")
        provider = said[0].split()[0]
        serve, said = start(
            "serve", "--bind", "127.0.0.1:0", "--memory", "--profile", "api", "--law", "fixed",
            "--rate", "1000", "--in-flight", "100", "--policy", str(policy),
        )
        results, ends = multiprocessing.Queue(), time.time() + seconds
        workers = [
            multiprocessing.Process(
                target=tokens_worker, args=(i, said[0].split()[-1], provider, ends, results)
            )
            for i in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        end(serve)
        report = json.loads(end(target))
    minutes = seconds // 60
    print(f"tokens: {report['served']} served, {report['refused']} refused")
    for limit in report["accounts"]["custom/openai"]:
        # A window starts full, so so many quantities fit into the time.
        share = limit["used"] / (limit["quantity"] * max(1, minutes))
        print(f"  {limit['limit']}: used {limit['used']} = {100 * share:.1f} %, "
              f"peak {limit['peak']} of {limit['quantity']}")


if __name__ == "__main__":
    what = {"account": account, "tokens": tokens}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if what is None:
        sys.exit(__doc__)
    what(int(sys.argv[2]) if len(sys.argv) > 2 else 120)
