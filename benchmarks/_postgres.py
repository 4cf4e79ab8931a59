"""A real PostgreSQL server on a free loopback port, for the duration of a block."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aiowheel.errors import AiowheelError

_INSTALLED = Path("/usr/lib/postgresql")  # Debian's folder with one folder per version, not on PATH
_PATIENCE = 60  # seconds allowed for start and stop on a slow machine
# No socket file: its path would be too long in a folder whose own path is long.
_SETTINGS = ("-N", "300", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
# The data does not outlive the block, so PostgreSQL need not wait for the disk unless requested.
_WITHOUT_DISK = ("-F", "-c", "full_page_writes=off")


class PostgresMissingError(AiowheelError):
    """PostgreSQL is not installed, or cannot be run by this user."""


@contextmanager
def postgres_server(*, fsync: bool = False, is_standby: bool = False) -> Generator[str, None, None]:
    """Create a database cluster, serve it during the block, and remove it; yield the DSN.

    Args:
        fsync: Whether a commit waits for the disk.
        is_standby: Whether the server accepts only reads, as the standby of a lost primary.

    Raises:
        PostgresMissingError: PostgreSQL is not installed, or this process runs as root, which
            PostgreSQL refuses, and there is no other account.
        AiowheelError: The server did not start.
    """
    programs = _find_programs()
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="aiowheel-postgres-"))
    try:
        if account:
            shutil.chown(folder, **account)
        cluster, port = folder / "cluster", _free_port()
        made = (programs / "initdb", "-U", "postgres", "-A", "trust", "-N", "-D", cluster)
        if _wait(_start(made, folder, account)) != 0:
            raise AiowheelError(f"PostgreSQL's initdb failed: {_reason(folder)}")
        settings = _SETTINGS if fsync else (*_SETTINGS, *_WITHOUT_DISK)
        words = (*settings, "-p", str(port), "-D", cluster)
        server = _start((programs / "postgres", *words), folder, account)
        try:
            _wait_until_ready(server, folder)
            if is_standby:  # a cluster that has never run writes no log that a standby can read
                server.send_signal(signal.SIGINT)
                _wait(server)
                (cluster / "standby.signal").touch()
                server = _start((programs / "postgres", *words), folder, account)
                _wait_until_ready(server, folder)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # stops immediately, even with open connections
            _wait(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_program(name: str) -> str | None:
    """Return the path of one of PostgreSQL's programs; None if it is not installed."""
    beside = _find_programs() / name
    return str(beside) if beside.exists() else shutil.which(name)


def _find_programs() -> Path:
    """Return the folder of initdb and pg_ctl: the newest of Debian's, or the one on the PATH."""
    versions = sorted(_INSTALLED.glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4))
    on_path = shutil.which("initdb")
    if versions:
        return versions[-1].parent
    if on_path:
        return Path(on_path).resolve().parent
    raise PostgresMissingError("PostgreSQL is not installed; on Debian: apt-get install postgresql")


def _account() -> Mapping[str, str]:
    """Return the account to use instead of root; empty to use the current account."""
    if os.name != "posix" or os.geteuid() != 0:
        return {}
    import pwd

    try:
        pwd.getpwnam("postgres")
    except KeyError:
        raise PostgresMissingError(
            "PostgreSQL refuses to run as root, and there is no account named postgres"
        ) from None
    return {"user": "postgres", "group": "postgres"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(
    command: tuple[str | Path, ...], folder: Path, account: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start one of PostgreSQL's programs; its output goes to a file."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - fixed arguments
            command,
            cwd=folder,
            user=account.get("user"),
            group=account.get("group"),
            extra_groups=[] if account else None,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait, like pg_ctl, for the line that the server logs when it accepts connections."""
    state = folder / "cluster" / "postmaster.pid"
    last_moment = time.monotonic() + _PATIENCE
    while not (state.exists() and state.read_text(encoding="utf-8").rstrip().endswith("ready")):
        if server.poll() is not None or time.monotonic() > last_moment:
            raise AiowheelError(f"PostgreSQL did not start: {_reason(folder)}")
        time.sleep(0.01)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program to exit; return its exit code."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _reason(folder: Path) -> str:
    """Return the first line of output that names an error, or the last line."""
    words = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    serious = [line for line in words if "FATAL" in line or "error" in line]
    return (serious[0] if serious else words[-1]).strip()
