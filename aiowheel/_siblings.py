"""Processes of one host that answer each other's questions over sockets in one folder. Rank 4.

A process listens on a Unix socket in the folder and finds the other processes by the names there. A
question is one line of JSON, and so is each answer. Access is controlled by the folder, which only
its owner may enter.

A killed process leaves its socket. The kernel refuses the next question to it, and the asking
process then removes the socket, unless it is so new that its process may not listen yet.

Answers of another version of this library may have other fields, so the version precedes them.
Processes of another version are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from aiowheel._build import __version__
from aiowheel._events import emit
from aiowheel.errors import BadInputError

Json: TypeAlias = dict[str, Any]
#: Takes a question and yields answers to it, until it ends or the asking process disconnects.
Answer: TypeAlias = Callable[[Json], AsyncGenerator[Json]]

_LONGEST_LINE: Final = 64 * 2**20
_LONGEST_QUESTION: Final = 65_536
_MOST_LOGGED: Final = 100  # bytes of the greeting of another version
_BACKLOG: Final = 100
_YOUNG: Final = 10.0  # seconds after its creation in which a socket is not removed
_GREETING: Final = json.dumps({"aiowheel": __version__}).encode() + b"\n"


class Siblings:
    """The membership of this process in a folder, which begins at the call and ends at `close`.

    Args:
        folder: A folder that only this user may enter; missing folders are created.
        name: The name of this process, unique among all processes of the folder, even dead ones.
        answer: Called with each question, in the running loop.

    Raises:
        BadInputError: Another user may enter the folder or own it, its path is too long for a
            socket, or the system has no Unix sockets.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str, answer: Answer) -> None:
        self._folder = Path(folder)
        self.name = name
        self._answer = answer
        self._answering: set[asyncio.Task[None]] = set()
        self._left_out: set[str] = set()  # names of processes of another version
        self._is_visible = True
        self._listener = _listen(checked_folder(self._folder) / f"{name}.sock")
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(self._serve(), name="aiowheel siblings")
        # Not in `close`, because the loop must stop reading from the socket first. This also
        # removes the socket if the loop ends without `close`.
        self._serving.add_done_callback(lambda _: self._leave())

    def names(self) -> list[str]:
        """Return the names of the processes, including this one; some may be dead.

        If the socket of this process was removed, for example with its folder, the other processes
        no longer find this one, which is logged once.
        """
        found = {path.stem for path in self._folder.glob("*.sock")}
        if self._is_visible and self.name not in found:
            self._is_visible = False
            emit("aiowheel.siblings_lost", folder=str(self._folder))
        return sorted({self.name, *found} - self._left_out)

    async def ask(self, name: str, question: Json) -> AsyncGenerator[Json]:
        """Yield the answers of a process until the generator is closed.

        Raises:
            OSError: The process does not listen, has ended, or runs another version of this
                library; another version is logged, and `names` leaves the process out from then on.
        """
        if name == self.name:
            async with contextlib.aclosing(self._answer(question)) as own:
                async for answer in own:
                    yield answer
            return
        path = self._folder / f"{name}.sock"
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
        except ConnectionRefusedError:
            _remove_dead(path)
            raise
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            greeting = await reader.readline()
            if greeting and greeting != _GREETING:
                self._leave_out(name, greeting)
            async for line in reader:
                yield json.loads(line)
        finally:
            writer.close()

    async def ask_all(
        self, question: Json, seconds: float, *, only: str | None = None
    ) -> dict[str, Json]:
        """Return the first answer of each process that answers within *seconds*, by name.

        Args:
            question: The question.
            seconds: How long to wait for the slowest process.
            only: The only process to ask; default: all of them.
        """

        async def first(name: str) -> Json | None:
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                async with (
                    asyncio.timeout(seconds),
                    contextlib.aclosing(self.ask(name, question)) as answers,
                ):
                    async for answer in answers:
                        return answer
            return None

        names = [name for name in self.names() if only in {None, name}]
        answers = await asyncio.gather(*(first(name) for name in names))
        found: Iterable[tuple[str, Json | None]] = zip(names, answers, strict=True)
        return {name: answer for name, answer in found if answer is not None}

    def close(self) -> None:
        """Stop answering, cancel running answers, and remove the socket; idempotent."""
        self._is_visible = False
        self._serving.cancel()
        self._remove()

    def _leave_out(self, name: str, greeting: bytes) -> NoReturn:
        self._left_out.add(name)
        said = greeting[:_MOST_LOGGED].decode(errors="replace").rstrip()
        emit("aiowheel.sibling_left_out", sibling=name, version=__version__, said=said)
        raise ConnectionAbortedError(f"process {name} has another version of aiowheel: {said}")

    def _leave(self) -> None:
        self._listener.close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):  # the folder was removed
            (self._folder / f"{self.name}.sock").unlink()

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(
            self._begin_answer, sock=self._listener, limit=_LONGEST_QUESTION, backlog=_BACKLOG
        )
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for task in self._answering:
                task.cancel()

    def _begin_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A separate task, because Python 3.11 reports an error if the task that `start_unix_server`
        # creates is cancelled.
        task = asyncio.create_task(self._answer_one(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        # Not in the task, because a task that is cancelled before it begins runs none of its code.
        task.add_done_callback(lambda _: writer.close())

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):  # a lost connection, or a bad question
            question = json.loads(await reader.readline())
            greeting = _GREETING
            async with contextlib.aclosing(self._answer(question)) as answers:
                async for answer in answers:
                    line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
                    try:
                        writer.write(greeting + line)
                    except RuntimeError:  # raised by uvloop if the transport is closed
                        return
                    greeting = b""
                    await writer.drain()


def checked_folder(folder: Path) -> Path:
    """Return *folder* if it is a legal folder for `Siblings`; create it if it is missing.

    Raises:
        BadInputError: As for `Siblings`.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise BadInputError("folder must be None on this system, which has no Unix sockets")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise BadInputError(
            f"folder must be one that can be made, got {folder}: {error}"
        ) from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise BadInputError(
            f"folder must be of this user and closed to others (chmod 700), got {folder}"
        )
    return folder


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInputError(f"folder must take a Unix socket, got {path}: {error}") from error
    listener.setblocking(False)
    return listener


def _remove_dead(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime > _YOUNG:
            path.unlink()
