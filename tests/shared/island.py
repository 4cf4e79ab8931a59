"""A network of its own for a server, behind one cable that a test cuts; needs root on Linux."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000  # of setns(2)
_PATIENCE = 60.0  # seconds


class IslandMissingError(Exception):
    """There is no way to make a network namespace here."""


class Island:
    """A network namespace, and a pair of virtual network cards between it and ours.

    Attributes:
        address: Of the island, as we reach it.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        # Another network for each process that may run such tests now.
        number = process % 16_000
        self._card = f"aiowheel{number}"
        network, first = f"10.213.{number // 64}", number % 64 * 4
        self._ours = f"{network}.{first + 1}"
        self.address = f"{network}.{first + 2}"

    def make(self) -> None:
        """Lay the cable.

        Raises:
            IslandMissingError: The kernel does not allow it.
        """
        ours, pair = self._card, ("peer", "name", "eth0", "netns", str(self._process))
        _run("ip", "link", "add", ours, "type", "veth", *pair)
        _run("ip", "address", "add", f"{self._ours}/30", "dev", ours)
        _run("ip", "link", "set", ours, "up")
        self._run_there("address", "add", f"{self.address}/30", "dev", "eth0")
        self._run_there("link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        """Let packets vanish both ways; no connection is closed."""
        self._run_there("link", "set", "eth0", "down")

    def mend(self) -> None:
        """Let packets through."""
        self._run_there("link", "set", "eth0", "up")

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* in a thread on the island; the programs that it starts are there, too."""

        def there() -> T:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(f"/proc/{self._process}/ns/net").open("rb") as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise IslandMissingError(os.strerror(ctypes.get_errno()))
            return function()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(there).result()

    def _run_there(self, *words: str) -> None:
        _run("nsenter", "--target", str(self._process), "--net", "ip", *words)


@contextmanager
def island() -> Generator[Island]:
    """A network namespace for as long as the block.

    Raises:
        IslandMissingError: It cannot be made; the text says why.
    """
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        raise IslandMissingError(
            f"{', '.join(missing)} not found; on Debian: apt-get install iproute2"
        )
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stderr=subprocess.DEVNULL)
    try:
        ours = Path("/proc/self/ns/net").readlink()
        last_moment = time.monotonic() + _PATIENCE
        while holder.poll() is None and Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
            assert time.monotonic() < last_moment
            time.sleep(0.01)
        if holder.poll() is not None:
            raise IslandMissingError("a network namespace needs root, and a kernel that allows it")
        made = Island(holder.pid)
        made.make()
        yield made
    finally:
        holder.kill()  # the namespace ends with it, and with that the cable
        holder.wait()


def _run(*words: str) -> None:
    """Run a program; its own words are the error."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    if done.returncode != 0:
        raise IslandMissingError(f"{' '.join(words)}: {done.stderr.strip()}")
