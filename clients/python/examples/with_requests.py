"""A worker that uses requests and is directed by a coordinator.

Usage: with_requests.py COORDINATOR URL…
"""

import sys

import requests

from politely_client import Client


def fetch(coordinator: Client, url: str) -> requests.Response | None:
    """Returns the last answer after the attempts that the coordinator allows, or `None` without an
    answer.
    """
    response = None
    for permit in coordinator.attempts(url):
        try:
            response = requests.get(url, timeout=permit.lease_left)
        except requests.RequestException as error:
            permit.failed(error)
        else:
            permit.report(response)
    return response


if __name__ == "__main__":
    lost = 0
    with Client(sys.argv[1]) as coordinator:
        for url in sys.argv[2:]:
            response = fetch(coordinator, url)
            lost += response is None or not response.ok
            print(url, response.status_code if response is not None else "no answer")
    sys.exit(1 if lost else 0)
