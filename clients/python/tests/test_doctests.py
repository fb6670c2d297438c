"""Runs the examples in the docstrings, over a coordinator and a host of this machine."""

import doctest
import importlib
import pkgutil

import politely_client


def test_the_examples_in_docstrings_run(serve, town, monkeypatch):
    monkeypatch.setenv("POLITELY_COORDINATOR", serve().url)
    host = town(shop={"limit": {"kind": "none"}, "pages": 20}).urls["shop"]
    package = politely_client.__name__
    names = [name for _, name, _ in pkgutil.walk_packages(politely_client.__path__, f"{package}.")]
    tried = []
    for name in [package, *names]:
        module = importlib.import_module(name)
        found = doctest.testmod(module, extraglobs={"url": f"{host}/page/0"})
        assert found.failed == 0, name
        if found.attempted:
            tried.append(name)
    # Each way in has an example.
    ways = [package, *(f"{package}.{name}" for name in ("aiohttp", "httpx", "requests"))]
    assert [name for name in ways if name not in tried] == []
