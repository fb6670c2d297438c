"""Several hosts behind Flask-Limiter, one limit each.

usage: app.py '{"<host name>": {"address": "127.0.0.2", "port": 8000, "log": "/path/to/log"}, ...}'

Served by waitress: one process, one port per host, a thread per request in progress.
"""

import json
import os
import sys
import time

import waitress
from flask import Flask, abort
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

HOSTS = {
    # Sends X-RateLimit-* and Retry-After with every answer, the 200s as well.
    "flask-5in1-fixed": dict(limit="5 per second", strategy="fixed-window", retry_after="delta-seconds"),
    "flask-20in10-moving": dict(limit="20 per 10 seconds", strategy="moving-window", retry_after="http-date"),
    # Neither headers nor Retry-After: a client has to find out.
    "flask-20in10-counter": dict(limit="20 per 10 seconds", strategy="sliding-window-counter", retry_after=None),
}


def site(limit, strategy, retry_after):
    app = Flask(__name__)
    Limiter(
        get_remote_address,
        app=app,
        application_limits=[limit],  # one count for all routes: robots.txt and pages together
        strategy=strategy,
        headers_enabled=retry_after is not None,
        retry_after=retry_after,
        storage_uri="memory://",
    )

    @app.get("/page/<int:n>")
    def page(n):
        text = f"<p>Page {n} of a host with a limit, about two kilobytes long.</p>\n"
        return "<!doctype html>\n" + text * 33

    @app.get("/robots.txt")  # a route of its own: Flask-Limiter does not count unrouted paths
    def robots():
        abort(404)

    return app


def with_truth_log(host, app, path):
    """One truth line per request, written before its answer leaves: who has the answer finds the line."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def logged(environ, start_response):
        wall, clock = time.time(), time.perf_counter()

        def start_and_log(status, headers, exc_info=None):
            took = time.perf_counter() - clock
            line = {
                "end": wall + took,
                "took": took,
                "host": host,
                "path": environ["PATH_INFO"],
                "status": int(status.split()[0]),
                "client": environ["REMOTE_ADDR"],
                "retry_after": dict(headers).get("Retry-After", ""),
            }
            os.write(log, (json.dumps(line) + "\n").encode())
            return start_response(status, headers, exc_info)

        return app(environ, start_and_log)

    return logged


def main():
    places = json.loads(sys.argv[1])
    sites = {str(place["port"]): with_truth_log(host, site(**HOSTS[host]), place["log"]) for host, place in places.items()}
    waitress.serve(
        lambda environ, start_response: sites[environ["SERVER_PORT"]](environ, start_response),
        listen=" ".join(f"{place['address']}:{place['port']}" for place in places.values()),
        threads=16,
    )


if __name__ == "__main__":
    main()
