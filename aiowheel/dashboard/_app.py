"""The dashboard as an ASGI application, to be mounted in another one. Rank 4; needs no extra."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from inspect import isawaitable
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs, quote

from aiowheel._arguments import checked_str, safe_repr
from aiowheel._events import emit
from aiowheel._siblings import Siblings, checked_folder
from aiowheel.dashboard._guard import Guard, Message, Scope, this_machine_only
from aiowheel.dashboard._processes import Processes
from aiowheel.dashboard._questions import Finder, answer, merged_answers
from aiowheel.dashboard._sample import Sampler, named
from aiowheel.dashboard._viewers import Viewers
from aiowheel.dashboard._waiting import Json
from aiowheel.errors import BadInputError
from aiowheel.integrations._hangup import send_until_disconnect
from aiowheel.integrations._stop_signals import signal_listener
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

if TYPE_CHECKING:
    from aiowheel.durable import DurableTimers

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_VIEWERS = 20
_MOST_SEARCHES = 2  # searches that run at the same time
_ANSWER_SECONDS = 10.0  # to wait for another process to answer a question about its keys
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Dashboard:
    """An ASGI application with a live page of a timer's wheels, its purgatories and durable timers.

    Mount it under a path of your application. The page reads the stream of server-sent events at
    the relative path `events`. A snapshot every quarter of a second serves all viewers; its cost
    does not grow with the number of pending operations, but after all keys have been examined, one
    snapshot lists them again. Without a viewer no snapshot is taken. The dashboard keeps the counts
    of the last five minutes, one point per second.

    Args:
        timer: An open `Timer` of the loop that serves the page.
        purgatories: Any number of purgatories on that timer.
        durable: `DurableTimers`, by the name to show. While there is a viewer, the dashboard counts
            their store, at O(pending), for at most one percent of the time.
        guard: Called with the ASGI scope of each request; returns, directly or as an awaitable,
            whether to answer it. Default: only clients on this machine, because the page shows
            keys.
        folder: Processes whose dashboards have the same folder are shown together; each of them
            serves the page for all. Only this user may have access to the folder. A missing folder
            is created. Default: this process only.
        example: A shell command that the page shows while nothing is pending; `{origin}` in it
            stands for the scheme, host and port of the page. Default: a line of Python.

    Raises:
        TypeError: An argument has the wrong type.
        BadInputError: *folder* cannot be used: other users have access to it, its path is too long
            for a Unix socket, or the system has no Unix sockets.
    """

    def __init__(
        self,
        timer: Timer,
        purgatories: Sequence[Purgatory] = (),
        *,
        durable: Mapping[str, DurableTimers] | None = None,
        guard: Guard | None = None,
        folder: str | os.PathLike[str] | None = None,
        example: str | None = None,
    ) -> None:
        _check_timers(timer, purgatories, durable)
        if guard is not None and not callable(guard):
            raise TypeError(f"guard must be a function or None, got {safe_repr(guard)}")
        if folder is not None and not isinstance(folder, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"folder must be a path or None, got {safe_repr(folder)}")
        if example is not None:
            checked_str("example", example)
        self._timer = timer
        self._purgatories = named(purgatories)
        self._run = secrets.token_hex(4)
        self._sampler = Sampler(timer, self._purgatories, durable or {}, self._run)
        self._finders = {
            name: Finder(purgatory, partial(self._sampler.shown_keys, name))
            for name, purgatory in self._purgatories.items()
        }
        self._own = Viewers(self._sampler.snapshot, self._discard)
        self._viewers: dict[str, Viewers[bytes]] = {}  # by chosen process; "" stands for all
        self._folder = None if folder is None else checked_folder(Path(folder))
        self._siblings: Siblings | None = None
        self._processes: Processes | None = None
        self._example = example
        self._searching = asyncio.Semaphore(_MOST_SEARCHES)
        self._streams = 0
        self._listening = contextlib.ExitStack()  # the signal listener, while there are streams
        self._guard = this_machine_only if guard is None else guard
        self._is_open = self._is_closed = False
        self._pages = _read_pages()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the first request opens it
        self._open()

    def _open(self) -> None:
        """Start the history, and connect with the other processes of the folder."""
        self._is_open = True
        self._sampler.history.start()
        if self._folder is not None:
            name = f"{os.getpid()}-{self._run}"
            self._siblings = Siblings(self._folder, name, self._answer_sibling)
            self._processes = Processes(self._siblings)

    def _open_late(self) -> None:
        """Open at the first request; without the other processes if the folder is unusable now."""
        try:
            self._open()
        except BadInputError as error:
            emit("aiowheel.dashboard_alone", error=str(error))

    def close(self) -> None:
        """End the streams of all viewers and the history. Idempotent.

        A stream has no end of its own, and would delay a server that waits for its requests when it
        shuts down. Streams end on SIGINT and SIGTERM; call this method if your server is stopped in
        another way.
        """
        self._is_open = self._is_closed = True
        self._sampler.history.stop()
        self._own.close()
        for viewers in list(self._viewers.values()):
            viewers.close()
        if self._processes is not None:
            self._processes.end()
        if self._siblings is not None:
            self._siblings.close()
            self._siblings = self._processes = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            raise ValueError(f"the dashboard serves http, got {scope['type']!r}: mount it")
        if not self._is_open:
            self._open_late()
        path = _path_below_mount(scope)
        allowed = self._guard(scope)
        if not (await allowed if isawaitable(allowed) else allowed):
            await _answer(send, 403, b"the dashboard is not for this client\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _answer(send, 405, b"the dashboard can only be read\n", (b"allow", b"GET, HEAD"))
        elif path == "":  # without the slash, browsers resolve the page's files one level up
            # Without the dot, a browser takes a name before a colon for the scheme of a URL.
            location = b"./" + _requested_path(scope).rpartition(b"/")[2] + b"/"
            await _answer(send, 307, b"", (b"location", location))
        elif path == "/events":
            if scope["method"] == "GET":
                await self._stream(_parameter(scope, "process") or "", receive, send)
            else:  # HEAD has no body, and the stream would not end
                await _begin_stream(send)
                await _end_stream(send)
        elif path in {"/keys", "/operations"}:
            await self._reply(path[1:], scope, send)
        elif path in self._pages:
            content, kind = self._pages[path]
            await _answer(send, 200, content, (b"content-type", kind))
        else:
            await _answer(send, 404, b"the dashboard has no such page\n")

    # --- streams ----------------------------------------------------------------------------

    async def _stream(self, process: str, receive: Receive, send: Send) -> None:
        if self._streams >= MOST_VIEWERS:
            await _answer(send, 503, b"too many viewers at once\n", (b"retry-after", b"5"))
            return
        if not self._streams:
            self._listening.enter_context(signal_listener((SIGINT, SIGTERM), self.close))
        self._streams += 1
        try:
            await self._stream_to(process, receive, send)
        finally:
            self._streams -= 1
            if not self._streams:
                self._listening.close()
                if self._processes is not None and not self._viewers:
                    self._processes.end()  # the last viewer disconnected before its first snapshot

    async def _stream_to(self, process: str, receive: Receive, send: Send) -> None:
        await _begin_stream(send)
        if self._is_closed:
            await _end_stream(send)
            return
        await send_until_disconnect(self._send_snapshots(process, send), receive, OSError)

    async def _send_snapshots(self, process: str, send: Send) -> None:
        processes = self._processes
        if processes is None:
            process = ""
            points = self._sampler.history.last()
        else:
            await processes.begin()
            points = processes.points(process)
        first: Json = {"points": points, "example": self._example}
        await send(_part(b"retry: 1000\n\n"))
        await send(_part(b"event: history\ndata: " + _as_bytes(first) + b"\n\n"))
        if not self._is_closed:  # nothing would end a stream that starts after `close`
            async with contextlib.aclosing(self._viewers_for(process).snapshots()) as snapshots:
                async for snapshot in snapshots:
                    await send(_part(b"data: " + snapshot + b"\n\n"))
        await _end_stream(send)

    def _viewers_for(self, process: str) -> Viewers[bytes]:
        """Return the viewers of *process*, or of all processes if it is ""."""
        viewers = self._viewers.get(process)
        if viewers is None:
            processes = self._processes

            def snapshot() -> bytes:
                if processes is None:
                    return _as_bytes(self._sampler.snapshot())
                return _as_bytes(processes.snapshot(process))

            def discard() -> None:
                self._viewers.pop(process, None)
                if processes is None:
                    self._discard()
                elif not self._streams:
                    processes.end()

            viewers = self._viewers[process] = Viewers(snapshot, discard)
        return viewers

    def _discard(self) -> None:
        """Drop what the page showed, because there is no viewer."""
        self._sampler.discard()
        self._forget_found()

    def _forget_found(self) -> None:
        for finder in self._finders.values():
            finder.forget()

    # --- questions --------------------------------------------------------------------------

    async def _reply(self, kind: str, scope: Scope, send: Send) -> None:
        """Answer a question about the keys or the operations of a purgatory, as JSON."""
        purgatory, text = _parameter(scope, "purgatory"), _parameter(scope, "text")
        if purgatory is None or text is None:
            names = "purgatory and text must be parameters of the query"
            await _answer(send, 400, f"{names}, got {scope['query_string']!r}\n".encode())
            return
        question = {"ask": kind, "purgatory": purgatory, "text": text}
        found = await self._ask(question, _parameter(scope, "process") or None)
        if found:
            await _answer(send, 200, _as_bytes(found), (b"content-type", b"application/json"))
        else:
            await _answer(send, 404, f"there is no purgatory {purgatory!r}\n".encode())

    async def _ask(self, question: Json, process: str | None) -> Json:
        """Ask *process*, or all processes: one that is blocked delays the answer of all."""
        if self._siblings is None:
            return await self._answer_own(question)
        answers = await self._siblings.ask_all(question, _ANSWER_SECONDS, only=process)
        return merged_answers(answers)

    async def _answer_own(self, question: Json) -> Json:
        async with self._searching:
            found = await answer(question, self._finders, self._timer.time())
        if not self._own and not self._viewers:
            self._forget_found()
        return found

    async def _answer_sibling(self, question: Json) -> AsyncGenerator[Json]:
        """Answer a question of another process: snapshots, keys or operations."""
        if question["ask"] != "looks":
            yield await self._answer_own(question)
            return
        points = self._sampler.history.last()
        async with contextlib.aclosing(self._own.snapshots()) as snapshots:
            async for snapshot in snapshots:
                yield {**snapshot, "points": points} if points else snapshot
                points = []


def _check_timers(timer: object, purgatories: object, durable: object) -> None:
    """Raise TypeError unless the arguments are what the dashboard can show."""
    if not isinstance(timer, Timer):
        raise TypeError(f"timer must be a Timer, got {safe_repr(timer)}")
    if not _holds_only(purgatories, Purgatory):
        text = f"must be a sequence of purgatories, got {safe_repr(purgatories)}"
        raise TypeError(f"purgatories {text}")
    if durable is not None:
        from aiowheel.durable import DurableTimers

        if not _holds_only(_values_of(durable), DurableTimers):
            text = f"must be a mapping of names to DurableTimers, got {safe_repr(durable)}"
            raise TypeError(f"durable {text}")


def _values_of(mapping: object) -> list[object] | None:
    if not isinstance(mapping, Mapping):
        return None
    return list(cast("Mapping[object, object]", mapping).values())


def _holds_only(values: object, kind: type) -> bool:
    if not isinstance(values, Sequence):
        return False
    return all(isinstance(each, kind) for each in cast("Sequence[object]", values))


def _requested_path(scope: Scope) -> bytes:
    """Return the percent-encoded path of the request, as the client sent it if that is known."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0]  # some servers keep the query


def _path_below_mount(scope: Scope) -> str:
    """Return the path below the mount; "" for the mount itself without a slash."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    # Litestar lets each path that it gives to a mounted application end with a slash.
    is_added = path.endswith("/") and not _requested_path(scope).endswith(b"/")
    return path.removesuffix("/") if is_added else path


def _parameter(scope: Scope, name: str) -> str | None:
    """Return a parameter of the query; None if it is missing."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return query[name][0] if name in query else None


def _as_bytes(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def _begin_stream(send: Send) -> None:
    kind = (b"content-type", b"text/event-stream")
    unbuffered = (b"x-accel-buffering", b"no")  # nginx must not buffer the stream
    headers = [kind, unbuffered, *_HEADERS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _end_stream(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    if not any(name == b"content-type" for name, _ in headers):
        headers = (*headers, (b"content-type", b"text/plain; charset=utf-8"))
    length = (b"content-length", b"%d" % len(body))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, length, *_HEADERS],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _read_pages() -> dict[str, tuple[bytes, bytes]]:
    """Return content and content type of each file of the page, by its path in a request."""
    pages: dict[str, tuple[bytes, bytes]] = {}
    for file in (files("aiowheel.dashboard") / "page").iterdir():
        kind = _KINDS.get(Path(file.name).suffix)
        if kind is not None and file.is_file():  # an editor may have files and links of its own
            pages[f"/{file.name}"] = (file.read_bytes(), kind.encode())
    pages["/"] = pages.pop("/index.html")
    return pages
