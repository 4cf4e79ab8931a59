"""The dashboard as an ASGI application that any other can mount. Rank 4: needs no extra."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from inspect import isawaitable
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from aiowheel._events import emit
from aiowheel._siblings import Siblings, checked_folder
from aiowheel.dashboard._guard import Guard, Message, Scope, this_machine_only
from aiowheel.dashboard._questions import answer, merged_answers
from aiowheel.dashboard._sample import Sampler, named
from aiowheel.dashboard._together import Together
from aiowheel.dashboard._viewers import Viewers
from aiowheel.dashboard._waiting import Json
from aiowheel.errors import BadInputError
from aiowheel.integrations._signals import signal_listener
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

if TYPE_CHECKING:
    from aiowheel.durable import DurableTimers

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_VIEWERS = 20
_MOST_SEARCHES = 2  # at once
_ANSWER_SECONDS = 10.0  # for a process to answer a question about its keys
_SCRIPTS = (
    "chart.js",
    "details.js",
    "dial.js",
    "durable.js",
    "element.js",
    "history.js",
    "page.js",
    "processes.js",
    "purgatory.js",
    "words.js",
)
_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in _SCRIPTS},
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Dashboard:
    """A page that shows a timer's wheels turn, what waits in its purgatories, and durable timers.

    Mount it under a path of your application. The page reads `events` beside it, a stream of
    server-sent events. One look every quarter of a second serves all viewers, and costs the same
    however much is pending; without a viewer there are no looks. The counts of the last five
    minutes are kept, one point a second.

    Args:
        timer: Open; a `Timer` of the loop that serves the page.
        purgatories: Any number, on that timer.
        durable: `DurableTimers`, by the name to show. Their store is counted, at O(pending), while
            there is a viewer, for at most a hundredth of the time.
        guard: Called with the ASGI scope of every request; returns, at once or awaited, whether to
            answer it. Default: only clients on this machine, because keys are shown.
        folder: The processes whose dashboards have the same folder are shown together, or one of
            them, whichever process answers. It must be of this user alone, and is made if it is
            missing. Default: this process only.
        example: A shell command that the page offers while nothing is pending; `{origin}` in it
            stands for the scheme, host and port of the page. Default: a line of Python.

    Raises:
        BadInputError: *folder* cannot be used: other users may enter it, its path is too long for a
            Unix socket, or the system has none.
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
        self._timer = timer
        self._purgatories = named(purgatories)
        self._run = secrets.token_hex(4)
        self._sampler = Sampler(timer, self._purgatories, durable or {}, self._run)
        self._own = Viewers(self._sampler.look, self._sampler.rest)
        self._viewers: dict[str, Viewers[bytes]] = {}  # by the process that they have chosen
        self._folder = None if folder is None else checked_folder(Path(folder))
        self._siblings: Siblings | None = None
        self._together: Together | None = None
        self._example = example
        self._searching = asyncio.Semaphore(_MOST_SEARCHES)
        self._streams = 0
        self._listening = contextlib.ExitStack()  # for signals, while there are streams
        self._guard = this_machine_only if guard is None else guard
        self._is_open = self._is_closed = False
        folder_of_page = files("aiowheel.dashboard") / "page"
        self._pages = {
            path: ((folder_of_page / name).read_bytes(), kind)
            for path, (name, kind) in _PAGES.items()
        }
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # it opens at the first request
        self._open()

    def _open(self) -> None:
        """Begin the history, and become visible to the other processes."""
        self._is_open = True
        self._sampler.history.start()
        if self._folder is not None:
            name = f"{os.getpid()}-{self._run}"
            self._siblings = Siblings(self._folder, name, self._answer_sibling)
            self._together = Together(self._siblings)

    def _open_late(self) -> None:
        """Open at the first request, without the other processes if the folder became unusable."""
        try:
            self._open()
        except BadInputError as error:
            emit("aiowheel.dashboard_alone", error=str(error))

    def close(self) -> None:
        """End every viewer's stream and the history; idempotent.

        Streams never end by themselves, which would delay the shutdown of a server that waits for
        its requests. They end at SIGINT and SIGTERM; call this where your server stops otherwise.
        """
        self._is_open = self._is_closed = True
        self._sampler.history.stop()
        self._own.close()
        for viewers in list(self._viewers.values()):
            viewers.close()
        if self._together is not None:
            self._together.end()
        if self._siblings is not None:
            self._siblings.close()
            self._siblings = self._together = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            raise ValueError(f"the dashboard serves http, got {scope['type']!r}: mount it")
        if not self._is_open:
            self._open_late()
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        allowed = self._guard(scope)
        if not (await allowed if isawaitable(allowed) else allowed):
            await _answer(send, 403, b"the dashboard is not for this client\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _answer(send, 405, b"the dashboard can only be read\n", (b"allow", b"GET, HEAD"))
        elif path == "":  # without the slash its files would be looked for one level up
            location = scope["path"].rpartition("/")[2].encode() + b"/"
            await _answer(send, 307, b"", (b"location", location))
        elif path == "/events":
            if scope["method"] == "GET":
                await self._stream(_parameter(scope, "process") or "", receive, send)
            else:  # a body of its own would never end
                await _begin_stream(send)
                await _end_stream(send)
        elif path in {"/keys", "/operations"}:
            await self._reply(path[1:], scope, send)
        elif path in self._pages:
            content, kind = self._pages[path]
            await _answer(send, 200, content, (b"content-type", kind.encode()))
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
                if self._together is not None and not self._viewers:
                    self._together.end()  # the last viewer has left before its first look

    async def _stream_to(self, process: str, receive: Receive, send: Send) -> None:
        await _begin_stream(send)
        if self._is_closed:
            await _end_stream(send)
            return
        sending = asyncio.create_task(self._send_looks(process, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):  # the client has left
                await sending

    async def _send_looks(self, process: str, send: Send) -> None:
        together = self._together
        if together is None:
            process = ""
            points = self._sampler.history.last()
        else:
            await together.begin()
            points = together.points(process)
        first: Json = {"points": points, "example": self._example}
        await send(_part(b"retry: 1000\n\n"))
        await send(_part(b"event: history\ndata: " + _as_bytes(first) + b"\n\n"))
        if not self._is_closed:  # nothing would end looks that begin after `close`
            async with contextlib.aclosing(self._viewers_of(process).looks()) as looks:
                async for look in looks:
                    await send(_part(b"data: " + look + b"\n\n"))
        await _end_stream(send)

    def _viewers_of(self, process: str) -> Viewers[bytes]:
        """Return those who look at *process*, or at all processes where it is ""."""
        viewers = self._viewers.get(process)
        if viewers is None:
            together = self._together

            def look() -> bytes:
                if together is None:
                    return _as_bytes(self._sampler.look())
                return together.look(process)

            def rest() -> None:
                self._viewers.pop(process, None)
                if together is None:
                    self._sampler.rest()
                elif not self._streams:
                    together.end()

            viewers = self._viewers[process] = Viewers(look, rest)
        return viewers

    # --- questions --------------------------------------------------------------------------

    async def _reply(self, kind: str, scope: Scope, send: Send) -> None:
        """Answer a question about the keys or the operations of a purgatory, as JSON."""
        purgatory, text = _parameter(scope, "purgatory"), _parameter(scope, "text")
        if purgatory is None or text is None:
            names = "purgatory and text must be parameters of the query"
            await _answer(send, 400, f"{names}, got {scope['query_string']!r}\n".encode())
            return
        question = {"ask": kind, "purgatory": purgatory, "text": text}
        found = await self._found(question, _parameter(scope, "process") or "")
        if found:
            await _answer(send, 200, _as_bytes(found), (b"content-type", b"application/json"))
        else:
            await _answer(send, 404, f"there is no purgatory {purgatory!r}\n".encode())

    async def _found(self, question: Json, process: str) -> Json:
        siblings = self._siblings
        if siblings is None:
            return await self._found_here(question)
        answers = await siblings.ask_all(question, _ANSWER_SECONDS)
        return merged_answers(
            {name: each for name, each in answers.items() if process in {"", name}}
        )

    async def _found_here(self, question: Json) -> Json:
        async with self._searching:
            return await answer(question, self._purgatories, self._timer.time())

    async def _answer_sibling(self, question: Json) -> AsyncGenerator[Json]:
        """Answer another process."""
        if question["ask"] != "looks":
            yield await self._found_here(question)
            return
        points = self._sampler.history.last()
        async with contextlib.aclosing(self._own.looks()) as looks:
            async for look in looks:
                yield {**look, "points": points} if points else look
                points = []


def _parameter(scope: Scope, name: str) -> str | None:
    """Return a parameter of the query; None where it is missing."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return query[name][0] if name in query else None


def _as_bytes(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin_stream(send: Send) -> None:
    kind = (b"content-type", b"text/event-stream")
    unbuffered = (b"x-accel-buffering", b"no")  # nginx would collect
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
