"""The PostgreSQL server of benchmarks and tests, and the errors without one."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from aiowheel.errors import AiowheelError
from benchmarks import _postgres
from benchmarks._postgres import PostgresMissingError, postgres_server

pytestmark = pytest.mark.one_build


def installed() -> bool:
    """Return whether PostgreSQL is installed and can be run by this account."""
    try:
        _postgres._find_programs()
        _postgres._account()
    except PostgresMissingError:
        return False
    return True


needs_postgres = pytest.mark.skipif(not installed(), reason="PostgreSQL is not installed")


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of clusters; PostgreSQL's account may not enter `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@needs_postgres
@pytest.mark.slow
def test_a_server_is_removed_if_the_block_raises(scratch: Path) -> None:
    """No process and no file remains, and the caller's own exception is raised."""
    ports: list[int] = []

    def fail() -> None:
        with postgres_server() as address:
            ports.append(urlsplit(address).port or 0)
            socket.create_connection(("127.0.0.1", ports[0])).close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert list(scratch.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


@needs_postgres
@pytest.mark.slow
def test_a_server_that_does_not_start_raises_its_message(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has PostgreSQL's own message, and no file remains."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(_postgres, "free_port", lambda: taken.getsockname()[1])

        with (
            pytest.raises(AiowheelError, match=r"did not start: .*could not"),
            postgres_server(),
        ):
            pass

    assert list(scratch.iterdir()) == []


def test_a_missing_postgres_names_the_package(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package to install."""
    monkeypatch.setattr(_postgres, "_INSTALLED", scratch)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(PostgresMissingError, match="apt-get install postgresql"), postgres_server():
        pass


def test_root_needs_the_account_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL refuses to run as root; every other account runs it itself."""
    pwd = pytest.importorskip("pwd")

    def unknown(_: str) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert _postgres._account() == {}

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(PostgresMissingError, match="no account named postgres"):
        _postgres._account()
