"""The dashboard as an ASGI application that any other can mount. Rank 4: needs no extra."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from inspect import isawaitable
from signal import SIGINT, SIGTERM

from aiowheel.dashboard._guard import Guard, Message, Scope, this_machine_only
from aiowheel.dashboard._sample import Sampler
from aiowheel.dashboard._viewers import Viewers
from aiowheel.integrations._signals import signal_listener
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_VIEWERS = 20
_SCRIPTS = ("dial.js", "element.js", "page.js", "purgatory.js", "rate.js", "words.js")
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
    """A page that shows a timer's wheels turn, and what waits in its purgatories.

    Mount it under a path of your application; the page asks for `events` beside it, a stream of
    server-sent events. One look every quarter of a second serves all viewers, and costs the same
    however much is pending; without a viewer none is taken.

    Args:
        timer: Open; a `Timer` of the loop that serves the page.
        purgatories: Any number, on that timer.
        guard: Gets the ASGI scope of every request, and says, at once or awaited, whether to
            answer it. Default: only clients on this machine. Keys and their waiters are shown.
    """

    def __init__(
        self, timer: Timer, purgatories: Sequence[Purgatory] = (), *, guard: Guard | None = None
    ) -> None:
        sampler = Sampler(timer, purgatories, run=secrets.token_hex(4))
        self._viewers = Viewers(sampler.look, sampler.rest)
        self._streams = 0
        self._hearing = contextlib.ExitStack()  # entered while anybody looks
        self._guard = this_machine_only if guard is None else guard
        folder = files("aiowheel.dashboard") / "page"
        self._pages = {
            path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGES.items()
        }

    def close(self) -> None:
        """End every viewer's stream; idempotent.

        A server that stops waits for its requests, and those streams never end by themselves. At
        SIGINT and SIGTERM they do; call this where your server is told to stop in another way.
        """
        self._viewers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            raise ValueError(f"the dashboard serves http, got {scope['type']!r}: mount it")
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
                await self._stream(receive, send)
            else:  # a body of its own would never end
                await _begin_stream(send)
                await _end_stream(send)
        elif path in self._pages:
            content, kind = self._pages[path]
            await _answer(send, 200, content, (b"content-type", kind.encode()))
        else:
            await _answer(send, 404, b"the dashboard has no such page\n")

    async def _stream(self, receive: Receive, send: Send) -> None:
        if self._streams >= MOST_VIEWERS:
            await _answer(send, 503, b"too many look already\n", (b"retry-after", b"5"))
            return
        if not self._streams:
            self._hearing.enter_context(signal_listener((SIGINT, SIGTERM), self.close))
        self._streams += 1
        try:
            await self._stream_to(receive, send)
        finally:
            self._streams -= 1
            if not self._streams:
                self._hearing.close()

    async def _stream_to(self, receive: Receive, send: Send) -> None:
        await _begin_stream(send)
        sending = asyncio.create_task(self._send_looks(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):  # the client has left
                await sending

    async def _send_looks(self, send: Send) -> None:
        await send(_part(b"retry: 1000\n\n"))
        async with contextlib.aclosing(self._viewers.looks()) as looks:
            async for look in looks:
                await send(_part(b"data: " + look + b"\n\n"))
        await _end_stream(send)


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
