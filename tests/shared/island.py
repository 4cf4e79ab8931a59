"""A separate network for a server, behind one cable that a test cuts; needs root on Linux."""

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
    """A network namespace cannot be created on this machine."""


class Island:
    """A network namespace, and a pair of virtual network cards between it and the test's network.

    Attributes:
        address: The address of the island in the test's network.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        # Each process that may run such tests at the same time has another network.
        number = process % 16_000
        self._card = f"aiowheel{number}"
        network, first = f"10.213.{number // 64}", number % 64 * 4
        self._ours = f"{network}.{first + 1}"
        self.address = f"{network}.{first + 2}"

    def make(self) -> None:
        """Create the pair of network cards.

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
        """Drop all packets in both directions; no connection is closed."""
        self._run_there("link", "set", "eth0", "down")

    def mend(self) -> None:
        """Stop dropping packets."""
        self._run_there("link", "set", "eth0", "up")

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* in a thread on the island; programs that it starts run there as well."""

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
    """Create a network namespace that exists during the block.

    Raises:
        IslandMissingError: It cannot be created; the text has the reason.
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
        holder.kill()  # the namespace ends with this process, and the network cards with it
        holder.wait()


def _run(*words: str) -> None:
    """Run a program; raise an error with its output if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    if done.returncode != 0:
        raise IslandMissingError(f"{' '.join(words)}: {done.stderr.strip()}")
