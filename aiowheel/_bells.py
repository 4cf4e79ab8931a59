"""Unix datagram sockets by which processes of one machine wake each other. Rank 4."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

BARE = b"!"  #: a message without content, which reports only that there is a change
LONGEST_MESSAGE = 4_000  #: bytes; unread messages count against the send buffer of their sender
#: The size of a group of messages up to which no further message was lost: Linux drops messages
#: when ten are unread. Other systems limit the bytes instead.
CERTAINLY_ALL = 8 if sys.platform == "linux" else 1
_LONGEST_ADDRESS = 100  # bytes of a socket's path; Linux accepts 107, macOS 103


class Bells:
    """The sockets of processes in a folder: this process reads its own and writes to all.

    The folder is beside a file that the processes share. A link is not used as the folder, nor is a
    folder of another user who may not read the file, because he could read the messages. Only users
    who may write the file may enter the folder, because a message is believed as the file is.

    Args:
        file: The file that the processes share.
        suffix: What follows the file's name in the name of the folder.
    """

    def __init__(self, file: Path, suffix: str) -> None:
        self._file = file
        self._folder = file.with_name(f"{file.name}{suffix}")
        self._path = f"{self._folder}{os.sep}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._name = ""

    def listen(
        self, loop: asyncio.AbstractEventLoop, rung: Callable[[Sequence[bytes]], object]
    ) -> None:
        """Call *rung* with each group of messages that arrives from now on.

        If a group has more than `CERTAINLY_ALL` messages, further messages may be lost, because
        the queue was full.

        On a system without Unix datagram sockets, *rung* is never called: the callers then depend
        on their looks at the file.

        Raises:
            OSError: The folder must not be used, or takes no socket.
        """
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            return
        self._folder.mkdir(_mode_of_folder(self._file), exist_ok=True)
        # Chosen here, because the object may have been created before a fork.
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        folder = self._checked_folder()
        try:
            self._narrow(folder)
            own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                own.setblocking(False)
                own.bind(self._address(folder, self._name))
            except OSError:
                own.close()
                raise
        finally:
            os.close(folder)
        self._own, self._loop = own, loop

        def on_readable() -> None:
            messages: list[bytes] = []
            try:
                while message := own.recv(LONGEST_MESSAGE):
                    messages.append(message)
            except OSError:  # there is no further message
                pass
            rung(messages)

        loop.add_reader(own, on_readable)

    def _address(self, folder: int, name: str) -> str:
        """Return the address of a socket in the folder, of which *folder* is a descriptor."""
        path = f"{self._path}{name}"
        is_short = len(os.fsencode(path)) <= _LONGEST_ADDRESS
        return path if is_short else f"/proc/self/fd/{folder}/{name}"

    def ring(self, message: bytes = BARE, *, own: bool = True) -> None:
        """Send a message to every process, and remove the sockets of dead ones.

        Args:
            message: At most `LONGEST_MESSAGE` bytes.
            own: Whether to send the message to this process as well.
        """
        if sys.platform == "win32":
            return
        try:
            folder = self._checked_folder()
        except OSError:  # no process listens, or there is no free descriptor
            return
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if own or entry.name != self._name]
            sender = self._sender or self._make_sender()
            for name in names:
                self._send(sender, message, folder, name)
        except OSError:  # no free descriptor
            return
        finally:
            os.close(folder)

    def _checked_folder(self) -> int:
        """Return an open descriptor of the folder; raise OSError if it must not be used."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        owner = os.fstat(folder).st_uid
        if owner == os.geteuid() or _may_read(owner, self._file):
            return folder
        os.close(folder)
        raise PermissionError(errno.EPERM, "a folder of another user", str(self._folder))

    def _narrow(self, folder: int) -> None:
        """Close a folder of this user to users who may not write the file."""
        found = os.fstat(folder)
        mode = stat.S_IMODE(found.st_mode)
        narrow = mode & ~(0o777 & ~_mode_of_folder(self._file))
        if found.st_uid == os.geteuid() and mode != narrow:
            os.fchmod(folder, narrow)

    def _send(self, sender: socket.socket, message: bytes, folder: int, name: str) -> None:
        try:
            sender.sendto(message, self._address(folder, name))
        except ConnectionRefusedError:  # also raised for a file that is no socket
            with contextlib.suppress(OSError):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISSOCK(mode):
                    os.unlink(name, dir_fd=folder)
        except OSError:  # the queue is full, so the process will read messages anyway
            return

    def _make_sender(self) -> socket.socket:
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        return self._sender

    def close(self) -> None:
        """Remove the socket of this process; idempotent."""
        own, self._own = self._own, None
        if own is not None and self._loop is not None:
            self._loop.remove_reader(own)
            own.close()
            with contextlib.suppress(OSError):
                (self._folder / self._name).unlink()
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


def _mode_of_folder(file: Path) -> int:
    """Return the permissions of the folder: users who may write *file* may enter the folder."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return stat.S_IRWXU
    group = stat.S_IRWXG if mode & stat.S_IWGRP else 0
    return stat.S_IRWXU | group | (stat.S_IRWXO if mode & stat.S_IWOTH else 0)


def _may_read(user: int, file: Path) -> bool:
    """Return whether *user* owns the file, or it is open to others, who may share it."""
    try:
        found = file.stat()
    except OSError:
        return False
    return found.st_uid == user or bool(found.st_mode & (stat.S_IRGRP | stat.S_IROTH))
