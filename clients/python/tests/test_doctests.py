"""Runs the examples in the docstrings, over a coordinator and a host of this machine."""

import doctest
import importlib
import pkgutil

import politely


def test_the_examples_in_docstrings_run(serve, town, monkeypatch):
    monkeypatch.setenv("POLITELY_COORDINATOR", serve().url)
    host = town(shop={"limit": {"kind": "none"}, "pages": 20}).urls["shop"]
    names = [name for _, name, _ in pkgutil.walk_packages(politely.__path__, "politely.")]
    tried = []
    for name in ["politely", *names]:
        module = importlib.import_module(name)
        found = doctest.testmod(module, extraglobs={"url": f"{host}/page/0"})
        assert found.failed == 0, name
        if found.attempted:
            tried.append(name)
    # Each way in has an example.
    ways = ["politely", "politely.aiohttp", "politely.httpx", "politely.requests"]
    assert [name for name in ways if name not in tried] == []
