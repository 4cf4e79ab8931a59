"""A real Redis server on its own socket file, for the duration of a block."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aiowheel.errors import AiowheelError

_PATIENCE = 30.0  # seconds allowed for start and stop on a slow machine
# The data does not outlive the block, so nothing is written to disk; no port is opened.
_SETTINGS = ("--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no")


class RedisMissingError(AiowheelError):
    """Redis is not installed."""


@contextmanager
def redis_server() -> Generator[str, None, None]:
    """Start Redis in a temporary folder and remove both at the end; yield the path of its socket.

    Raises:
        RedisMissingError: There is no redis-server on the PATH.
        AiowheelError: The server did not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise RedisMissingError("Redis is not installed; on Debian: apt-get install redis-server")
    # The path of the socket must be short, and the user's folder for temporary files may be deep.
    with tempfile.TemporaryDirectory(prefix="aiowheel-redis-", dir="/tmp") as name:
        folder = Path(name)
        path = folder / "socket"
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(  # noqa: S603 - fixed arguments
                (program, *_SETTINGS, "--unixsocket", path, "--dir", folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # so that Ctrl-C reaches only this process, which then stops Redis
            )
        try:
            _wait_until_ready(server, path, folder / "log")
            yield str(path)
        finally:
            server.terminate()
            try:
                server.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    """Wait until the server accepts connections."""
    last_moment = time.monotonic() + _PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                pass
            else:
                return
        if server.poll() is not None or time.monotonic() > last_moment:
            words = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            raise AiowheelError(f"Redis did not start: {words[-1].strip()}")
        time.sleep(0.01)
