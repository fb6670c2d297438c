"""Tests a coordinator that speaks TLS with a certificate of the fleet's own authority."""

import asyncio
import shlex
import subprocess

import pytest

from politely_client import AsyncClient, BadCall, Client

CAUSE = "CERTIFICATE_VERIFY_FAILED"
KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
AUTHORITY = f"req -x509 {KEY} -subj /CN=authority -keyout ca-key.pem -out ca.pem"
SERVER = (
    f"req -x509 -CA ca.pem -CAkey ca-key.pem {KEY} -subj /CN=coordinator -keyout key.pem -out cert.pem "
    "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
)


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """The folder of an authority that is not trusted yet, with a certificate for 127.0.0.1."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for command in (AUTHORITY, SERVER):
        made = ["openssl", *shlex.split(command)]
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def secured(serve, folder) -> str:
    url = serve("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")).url
    assert url.startswith("https://")
    return url


def test_an_authority_in_the_environment_is_trusted(serve, authority, monkeypatch):
    url = secured(serve, authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    with Client(url) as coordinator, coordinator.permit(key="a.example") as permit:
        assert permit.report(status=200).what == "done"

    async def one() -> None:
        async with AsyncClient(url) as coordinator:
            async with coordinator.permit(key="b.example") as permit:
                await permit.report(status=200)

    asyncio.run(one())


def test_a_stranger_is_not_trusted(serve, authority):
    """The call fails at once with the reason, because a retry cannot succeed."""
    url = secured(serve, authority)
    with Client(url) as coordinator, pytest.raises(BadCall, match=CAUSE) as said:
        coordinator.acquire(key="a.example")
    assert url in str(said.value) and said.value.status == 0

    async def one() -> None:
        async with AsyncClient(url) as coordinator:
            with pytest.raises(BadCall, match=CAUSE):
                await coordinator.acquire(key="a.example")

    asyncio.run(one())


def test_a_stranger_among_several_is_gone_by(serve, authority):
    with Client([secured(serve, authority), serve().url]) as coordinator:
        coordinator.acquire(key="a.example", wait=30.0).report(status=200)
