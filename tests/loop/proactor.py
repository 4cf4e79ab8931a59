"""asyncio's proactor loop on a fake of Windows' completion port, for other systems.

The loop is asyncio's own `BaseProactorEventLoop`, the base of `ProactorEventLoop` on Windows. The
fake waits with a selector and, as the real port does, in whole milliseconds, rounded up.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import socket
from asyncio.proactor_events import BaseProactorEventLoop
from collections.abc import Callable
from typing import Any


class FakeProactor:
    """A fake of `IocpProactor`, which returns one future for each operation.

    Attributes:
        waits: The timeouts of every `select`, in seconds.
    """

    def __init__(self) -> None:
        self.waits: list[float | None] = []
        self._selector = selectors.DefaultSelector()
        self._waiting: dict[tuple[socket.socket, int], Callable[[], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def set_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the loop for which the futures are created."""
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[object]:
        """Finish the operations that are ready; wait at most *timeout* seconds for the first."""
        self.waits.append(timeout)
        if timeout is not None:
            timeout = math.ceil(timeout * 1e3) / 1e3
        for key, events in self._selector.select(timeout):
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                if events & event:
                    self._waiting[key.fileobj, event]()  # type: ignore[index]  # it is a socket
        return []

    def recv(self, sock: socket.socket, size: int, flags: int = 0) -> asyncio.Future[Any]:
        """Receive bytes."""
        return self._once(sock, selectors.EVENT_READ, lambda: sock.recv(size, flags))

    def recv_into(self, sock: socket.socket, buffer: Any, flags: int = 0) -> asyncio.Future[Any]:
        """Receive into a buffer."""
        return self._once(sock, selectors.EVENT_READ, lambda: sock.recv_into(buffer, 0, flags))

    def send(self, sock: socket.socket, data: Any, flags: int = 0) -> asyncio.Future[Any]:
        """Send bytes."""
        return self._once(sock, selectors.EVENT_WRITE, lambda: sock.send(data, flags))

    def accept(self, sock: socket.socket) -> asyncio.Future[Any]:
        """Accept a connection."""
        return self._once(sock, selectors.EVENT_READ, sock.accept)

    def connect(self, sock: socket.socket, address: Any) -> asyncio.Future[Any]:
        """Connect a socket."""
        sock.setblocking(False)
        sock.connect_ex(address)
        return self._once(sock, selectors.EVENT_WRITE, lambda: None)

    def _stop_serving(self, sock: socket.socket) -> None:
        self._forget(sock, selectors.EVENT_READ)

    def close(self) -> None:
        """Free the selector."""
        self._selector.close()

    def _once(
        self, sock: socket.socket, event: int, operation: Callable[[], object]
    ) -> asyncio.Future[Any]:
        assert self._loop is not None
        future = self._loop.create_future()

        def ready() -> None:
            try:
                result = operation()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._forget(sock, event)
                future.set_exception(error)
            else:
                self._forget(sock, event)
                future.set_result(result)

        sock.setblocking(False)
        self._waiting[sock, event] = ready
        self._watch(sock)

        def over(_: asyncio.Future[Any]) -> None:
            if self._waiting.get((sock, event)) is ready:  # no later operation has replaced it
                self._forget(sock, event)

        future.add_done_callback(over)
        return future

    def _forget(self, sock: socket.socket, event: int) -> None:
        if self._waiting.pop((sock, event), None) is not None:
            self._watch(sock)

    def _watch(self, sock: socket.socket) -> None:
        """Register exactly the pending events of the socket with the selector."""
        events = sum(event for other, event in self._waiting if other is sock)
        if self._selector.get_map().get(sock) is not None:
            self._selector.unregister(sock)
        if events:
            self._selector.register(sock, events)


class FakeProactorEventLoop(BaseProactorEventLoop):
    """asyncio's proactor loop on the fake."""

    def __init__(self) -> None:
        super().__init__(FakeProactor())

    def run_forever(self) -> None:
        """Receive wake-ups of other threads while the loop runs, as Windows' loop does."""
        own: Any = self
        self.call_soon(own._loop_self_reading)
        try:
            super().run_forever()
        finally:
            if own._self_reading_future is not None:
                own._self_reading_future.cancel()
                own._self_reading_future = None

    @property
    def proactor(self) -> FakeProactor:
        """Return the fake."""
        fake: object = self._proactor  # type: ignore[attr-defined]
        assert isinstance(fake, FakeProactor)
        return fake
