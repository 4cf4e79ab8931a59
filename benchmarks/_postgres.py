"""A real PostgreSQL server on a free loopback port."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aiowheel.errors import AiowheelError
from benchmarks._ports import free_port

_INSTALLED = Path("/usr/lib/postgresql")  # Debian's folder with one folder per version, not on PATH
_PATIENCE = 60  # seconds allowed for start and stop on a slow machine
# No socket file: its path would be too long in a folder whose own path is long.
_SETTINGS = ("-N", "300", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
# The data does not outlive the block, so PostgreSQL need not wait for the disk unless requested.
_WITHOUT_DISK = ("-F", "-c", "full_page_writes=off")


class PostgresMissingError(AiowheelError):
    """PostgreSQL is not installed, or cannot be run by this user."""


class PostgresServer:
    """A PostgreSQL server with its own database cluster, which can be stopped and started again.

    Args:
        folder: An empty folder for the cluster and the log; PostgreSQL's account must reach it.
        words: Further arguments of the server.

    Attributes:
        port: The TCP port, which stays the same after a restart.
        dsn: The address of the server.

    Raises:
        PostgresMissingError: PostgreSQL is not installed, or this process runs as root, which
            PostgreSQL refuses, and there is no other account.
        AiowheelError: The cluster was not created.
    """

    def __init__(self, folder: Path, *words: str) -> None:
        self._programs = _find_programs()
        self._account = _account()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        if self._account:
            shutil.chown(folder, **self._account)
        self.cluster = folder / "cluster"
        self.port = free_port()
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._words = (*_SETTINGS, *words, "-p", str(self.port), "-D", str(self.cluster))
        made = self._run("initdb", "-U", "postgres", "-A", "trust", "-N", "-D", str(self.cluster))
        if _wait(made) != 0:
            raise AiowheelError(f"PostgreSQL's initdb failed: {_reason(folder)}")

    def start(self) -> None:
        """Start the server, and wait, like pg_ctl, until it logs that it accepts connections.

        Raises:
            AiowheelError: The server did not start.
        """
        self._process = self._run("postgres", *self._words)
        state = self.cluster / "postmaster.pid"
        last_moment = time.monotonic() + _PATIENCE
        while not (state.exists() and state.read_text(encoding="utf-8").rstrip().endswith("ready")):
            if self._process.poll() is not None or time.monotonic() > last_moment:
                raise AiowheelError(f"PostgreSQL did not start: {_reason(self._folder)}")
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT is an orderly stop, SIGQUIT a crash with a later recovery."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            _wait(process)

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        """Start one of PostgreSQL's programs; its output goes to a file."""
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - fixed arguments
                (self._programs / program, *words),
                cwd=self._folder,
                user=self._account.get("user"),
                group=self._account.get("group"),
                extra_groups=[] if self._account else None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@contextmanager
def postgres_server(*, fsync: bool = False, is_standby: bool = False) -> Generator[str, None, None]:
    """Create a database cluster, serve it during the block, and remove it; yield the DSN.

    Args:
        fsync: Whether a commit waits for the disk.
        is_standby: Whether the server accepts only reads, as the standby of a lost primary.

    Raises:
        PostgresMissingError: As `PostgresServer`.
        AiowheelError: The server did not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="aiowheel-postgres-"))
    try:
        server = PostgresServer(folder, *(() if fsync else _WITHOUT_DISK))
        try:
            server.start()
            if is_standby:  # a cluster that has never run writes no log that a standby can read
                server.stop()
                (server.cluster / "standby.signal").touch()
                server.start()
            yield server.dsn
        finally:
            server.stop(signal.SIGQUIT)  # stops immediately, even with open connections
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
