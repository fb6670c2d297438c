"""Reads WARC files with warcio and with FastWARC, and writes what each sees as JSON.

A record is a list: type, URL, status, payload, and whether the digest of the payload is right. A
record that is torn ends its file.
"""

import base64
import hashlib
import json
import sys

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator


def read(path, iterate, record_of):
    records = []
    with open(path, "rb") as file:
        try:
            for record in iterate(file):
                kind, headers, status, payload, length = record_of(record)
                if length is not None and len(payload) != length:
                    break
                digest = "sha1:" + base64.b32encode(hashlib.sha1(payload).digest()).decode()
                is_right = kind != "response" or headers.get("WARC-Payload-Digest") == digest
                records.append([kind, headers.get("WARC-Target-URI"), status, payload.decode("latin-1"), is_right])
        except Exception as why:  # each reader has errors of its own for a torn record
            print(f"{path}: {why!r}", file=sys.stderr)
    return records


def of_warcio(record):
    http = record.http_headers
    payload = record.raw_stream.read()
    headers = dict(record.rec_headers.headers)
    length = http and http.get_header("Content-Length")
    is_body = record.rec_type == "response" and length
    status = http.get_statuscode() if http and record.rec_type in ("response", "revisit") else None
    return record.rec_type, headers, status, payload, int(length) if is_body else None


def of_fastwarc(record):
    http = record.http_headers
    payload = record.reader.read()
    headers = dict(record.headers)
    length = http and http.get("Content-Length")
    kind = headers["WARC-Type"]
    is_body = kind == "response" and length
    status = str(http.status_code) if http and kind in ("response", "revisit") else None
    return kind, headers, status, payload, int(length) if is_body else None


print(
    json.dumps(
        [
            {
                "warcio": read(path, ArchiveIterator, of_warcio),
                "fastwarc": read(path, FastIterator, of_fastwarc),
            }
            for path in sys.argv[1:]
        ]
    )
)
