"""The listening sockets of the service: its own, or sockets passed by a supervisor. Rank 5.

Source of the second: sd_listen_fds(3). The environment variable `LISTEN_FDS` is the number of
sockets, which start at file descriptor 3; `LISTEN_PID` is the process that they are for.
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
# Bytes of unsent data that the kernel accepts per connection. This bounds the kernel memory of a
# client that does not read, and does not slow down a client that reads.
_MOST_UNSENT = 65_536


@contextlib.contextmanager
def listeners(
    host: str, port: int, unix: str | None, silence: float
) -> Generator[list[socket.socket]]:
    """Open the listening sockets for the block; remove the path of a Unix socket after it.

    Args:
        host: Address or host name to listen on.
        port: TCP port; 0 chooses a free one.
        unix: Path of a Unix socket to listen on, in place of *host* and *port*.
        silence: Seconds after which the kernel closes a connection whose client acknowledges no
            data, because its network or machine failed. Only where the system supports
            `TCP_USER_TIMEOUT`.

    Yields:
        The sockets passed by a supervisor; if there are none, one new socket.

    Raises:
        AiowheelError: The service cannot listen on the address, or a passed file descriptor is not
            a listening stream socket.
    """
    with contextlib.ExitStack() as stack:
        sockets = _inherited()
        if not sockets:
            sockets = [_listen_tcp(host, port) if unix is None else _listen_unix(Path(unix), stack)]
        for each in sockets:
            stack.enter_context(each)
            each.setblocking(False)
            if each.family in {socket.AF_INET, socket.AF_INET6}:
                _limit_connection(each, silence)
        yield sockets


def _limit_connection(listener: socket.socket, silence: float) -> None:
    """Set options that accepted connections inherit: limits of unsent data and of silence."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_UNSENT)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # in milliseconds
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1_000 * silence))


def address_of(listener: socket.socket, *, tls: bool) -> str:
    """Return the URL of *listener*; for a Unix socket in nginx's notation.

    The name of an abstract socket begins with "@", as systemd and ss(8) write it.
    """
    scheme = "https" if tls else "http"
    name = listener.getsockname()
    if isinstance(name, bytes):  # an abstract socket
        return f"{scheme}://unix:{os.fsdecode(name).replace(chr(0), '@', 1)}:"
    if isinstance(name, str):
        return f"{scheme}://unix:{'./' if name.startswith('@') else ''}{name}:"
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
    except (OSError, UnicodeError) as error:  # UnicodeError: not encodable as a host name
        reason = getattr(error, "strerror", None) or error
        raise AiowheelError(f"cannot listen on {host} port {port}: {reason}") from error
    return listener


def _listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise AiowheelError(f"cannot listen on {path}: this system has no Unix sockets")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(str(path))
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise AiowheelError(f"cannot listen on {path}: {reason}") from error
    stack.callback(_remove_own, path, path.stat().st_ino)
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the Unix socket of a process that ended without removing it."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return  # bind raises, because the path exists
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a full backlog would block, and means that a process listens
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError:
            return


def _remove_own(path: Path, inode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:  # otherwise the socket of a later process is there
            path.unlink()


def _inherited() -> list[socket.socket]:
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # child processes must not see them
        os.environ.pop(name, None)
    if not count.isdecimal():
        raise AiowheelError(f"LISTEN_FDS must be a number of sockets, got {count!r}")
    return [_inherited_socket(_FIRST_INHERITED + number) for number in range(int(count))]


def _inherited_socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        adopted = socket.socket(fileno=descriptor)
        listens = adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        text = f"file descriptor {descriptor} from LISTEN_FDS is no socket: {error.strerror}"
        raise AiowheelError(text) from error
    if adopted.type != socket.SOCK_STREAM or not listens:
        adopted.close()
        raise AiowheelError(f"file descriptor {descriptor} from LISTEN_FDS does not listen")
    return adopted
