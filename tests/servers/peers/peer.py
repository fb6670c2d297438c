"""Serves pages in gzip, refuses every fourth request to /limited/ with an HTTP date, and closes
connections after 100 ms without a request.

Usage: peer.py HOST PORT, with the pages in the folder `site`.
"""

import gzip
import itertools
import sys
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LIMITED = itertools.count(1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 0.1

    def do_GET(self):
        if self.path.startswith("/limited/") and next(LIMITED) % 4 == 0:
            wait = formatdate(time.time() + 2, usegmt=True)
            return self.answer(503, b"slow down", {"Retry-After": wait})
        try:
            page = Path(f"site{self.path}").read_bytes()
        except OSError:
            return self.answer(404, b"", {})
        headers = {"Content-Type": "text/html"}
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            page = gzip.compress(page)
        return self.answer(200, page, headers)

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
