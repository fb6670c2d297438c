"""Tests the docstrings: runs their examples, over a coordinator and a host of this machine."""

import doctest
import importlib
import inspect
import os
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path

import politely_client
import pytest

FAST = ("--law", "fixed", "--rate", "20")


def test_the_examples_in_docstrings_run(serve, town, monkeypatch):
    monkeypatch.setenv("POLITELY_COORDINATOR", serve(*FAST).url)
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


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_help_of_a_client_has_an_example_and_every_parameter(name):
    client = getattr(politely_client, name)
    text = pydoc.plain(pydoc.render_doc(client))
    assert f">>> from politely_client import {name}" in text
    for parameter in inspect.signature(client).parameters:
        assert f"``{parameter}``" in client.__doc__, parameter


def test_the_version_is_that_of_the_installed_distribution(tmp_path):
    sources = Path(politely_client.__file__).parents[1]
    paths = os.pathsep.join([str(tmp_path), str(sources)])

    def version() -> str:
        code = "import politely_client; print(politely_client.__version__)"
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert version() == "0+unknown\n"
    metadata = tmp_path / "politely_client-1.2.3.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: politely-client\nVersion: 1.2.3\n")
    assert version() == "1.2.3\n"
