"""The sockets that the service listens on: its own, or those that a supervisor hands over. Rank 5.

Source: sd_listen_fds(3) for the latter: `LISTEN_FDS` sockets, from file descriptor 3 on, meant for
the process `LISTEN_PID`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Generator
from pathlib import Path

from aiowheel.errors import AiowheelError

_FIRST_INHERITED = 3
# What the kernel takes of an answer before it has been sent. A client that reads nothing costs no
# more of the kernel's memory; the window of a client that reads is not narrowed.
_MOST_UNSENT = 65_536


@contextlib.contextmanager
def listeners(
    host: str, port: int, unix: str | None, silence: float
) -> Generator[list[socket.socket]]:
    """Listen inside the block, and remove the path of a Unix socket after it.

    Args:
        host: Address or name to listen on.
        port: 0 for one that is free.
        unix: Path of a Unix socket to listen on instead.
        silence: Seconds after which a client that acknowledges nothing of what it was sent is gone,
            where the system can tell: its network, or its machine, may have failed.

    Yields:
        The sockets that a supervisor handed over, which come first, or one of our own.

    Raises:
        AiowheelError: The address cannot be listened on, or what was handed over is no listening
            stream socket.
    """
    with contextlib.ExitStack() as stack:
        sockets = _inherited()
        if not sockets:
            sockets = [_listen_tcp(host, port) if unix is None else _listen_unix(Path(unix), stack)]
        for each in sockets:
            stack.enter_context(each)
            each.setblocking(False)
            if each.family in {socket.AF_INET, socket.AF_INET6}:
                _bound(each, silence)
        yield sockets


def _bound(listener: socket.socket, silence: float) -> None:
    """Bound what a connection, which inherits this, holds of the kernel, and for how long."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_UNSENT)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # in milliseconds
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1_000 * silence))


def address_of(listener: socket.socket, *, tls: bool) -> str:
    """The address of *listener* as a URL; a Unix socket's as nginx writes it."""
    scheme = "https" if tls else "http"
    name = listener.getsockname()
    if isinstance(name, str):
        return f"{scheme}://unix:{name}:"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listen_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter: no name of a host can be made of it
        reason = getattr(error, "strerror", None) or error
        raise AiowheelError(f"cannot listen on {host} port {port}: {reason}") from error
    return listener


def _listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise AiowheelError(f"cannot listen on {path}: this system has no Unix sockets")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        listener.bind(str(path))
    except (OSError, ValueError) as error:  # the latter: a path with a null character
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise AiowheelError(f"cannot listen on {path}: {reason}") from error
    stack.callback(_remove_own, path, path.stat().st_ino)
    return listener


def _remove_dead(path: Path) -> None:
    """Remove the socket of a process that ended without removing it."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return  # bind says that the path is taken
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a backlog that is full is somebody's
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError:
            return


def _remove_own(path: Path, inode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:  # else a later process has put its own there
            path.unlink()


def _inherited() -> list[socket.socket]:
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for a child of ours
        os.environ.pop(name, None)
    if not count.isdecimal():
        raise AiowheelError(f"LISTEN_FDS must be a number of sockets, got {count!r}")
    return [_adopted(_FIRST_INHERITED + number) for number in range(int(count))]


def _adopted(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        adopted = socket.socket(fileno=descriptor)
        listens = adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        text = f"file descriptor {descriptor}, from LISTEN_FDS, is no socket: {error.strerror}"
        raise AiowheelError(text) from error
    if adopted.type != socket.SOCK_STREAM or not listens:
        raise AiowheelError(f"file descriptor {descriptor}, from LISTEN_FDS, does not listen")
    return adopted
