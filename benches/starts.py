"""Many real cold starts at one kind of limit: 150 pages each, of Flask-Limiter hosts that have it, begun at any moment of their windows.

usage: .venv/bin/python benches/starts.py [--host flask-20in10-counter] [--profile crawler] [--starts 40]

Needs what `scripts/setup` installs and `cargo build --profile dist -p politely-cli --features full` builds. A line for each start, the slowest last: how long it took, how many requests were
refused, and when in ten seconds of the clock it began.
"""

import argparse
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/servers/flask"))
try:
    import app
    import waitress
except ModuleNotFoundError as missing:
    sys.exit(f"starts: no module {missing.name}: scripts/setup makes .venv, whose python this is for")

POLITELY = ROOT / "target/dist/politely"
PAGES = 150
# Each holds a listener and a few connections.
STARTS_MAX = 200
# So that starts are spread over a window of ten seconds.
APART_S = 0.737


def counted(site, log):
    def call(environ, start_response):
        def start(status, headers, exc_info=None):
            log.append((time.time(), status.startswith("429")))
            return start_response(status, headers, exc_info)

        return site(environ, start)

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", choices=app.HOSTS, default="flask-20in10-counter")
    parser.add_argument("--profile", choices=("crawler", "api"), default="crawler")
    parser.add_argument("--starts", type=int, default=40)
    given = parser.parse_args()
    if not 1 <= given.starts <= STARTS_MAX:
        parser.error(f"--starts: {given.starts}: from 1 to {STARTS_MAX}")
    if not POLITELY.exists():
        sys.exit(f"starts: no {POLITELY}: cargo build --profile dist -p politely-cli --features full")

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(given.starts)]
    ports = [listener.getsockname()[1] for listener in listeners]
    logs = {port: [] for port in ports}
    sites = {str(port): counted(app.site(**app.HOSTS[given.host]), logs[port]) for port in ports}
    server = waitress.create_server(
        lambda environ, start_response: sites[environ["SERVER_PORT"]](environ, start_response),
        sockets=listeners,
        threads=16,
        connection_limit=1000,
    )
    threading.Thread(target=server.run, daemon=True).start()
    crawls = []
    for port in ports:
        fetch = [POLITELY, "fetch", "--profile", given.profile, "--output", "/dev/null", "--summary", "none", "-"]
        crawl = subprocess.Popen(fetch, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        crawl.stdin.writelines(f"http://127.0.0.1:{port}/page/{n}\n" for n in range(PAGES))
        crawl.stdin.close()
        crawls.append(crawl)
        time.sleep(APART_S)
    failed = [crawl for crawl in crawls if crawl.wait() != 0]

    took = sorted((log[-1][0] - log[0][0], sum(refused for _, refused in log), log[0][0] % 10) for log in logs.values())
    for seconds, refused, began in took:
        print(f"{seconds:5.1f} s, {refused:2} refused, began {began:.1f} s into ten")
    print(f"mean refused {sum(refused for _, refused, _ in took) / given.starts:.2f}, {len(failed)} crawls with pages lost")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
