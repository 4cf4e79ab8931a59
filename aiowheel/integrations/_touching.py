"""Hearing of every chunk that a transport receives. Rank 4.

Whole messages would not do: who sends a long one slowly is not silent.
"""

from __future__ import annotations

from asyncio import BaseTransport, BufferedProtocol, Protocol
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast


class _TouchingProtocol(Protocol):
    """Stands before *inner* and calls *touch* for every chunk."""

    __slots__ = ("_inner", "_touch")

    def __init__(self, inner: Protocol, touch: Callable[[], object]) -> None:
        self._inner = inner
        self._touch = touch

    def data_received(self, data: bytes) -> None:
        self._touch()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


@contextmanager
def touching(transport: BaseTransport, touch: Callable[[], object]) -> Generator[None]:
    """Call *touch* for every chunk that *transport* receives in the block.

    For a stream `writer.transport`, for a connection of the websockets library its `transport`,
    where control frames and pieces of messages count, too. After `start_tls` there is another
    transport: enter the block then.

    Args:
        transport: Of a connection.
        touch: Takes no arguments; must not raise.

    Raises:
        TypeError: Its protocol is a `BufferedProtocol`, which receives no chunks.

    Cost: two calls a chunk.
    """
    inner = transport.get_protocol()
    if isinstance(inner, BufferedProtocol):
        raise TypeError(f"only a Protocol receives chunks, not the BufferedProtocol {inner!r}")
    protocol = _TouchingProtocol(cast(Protocol, inner), touch)
    transport.set_protocol(protocol)
    try:
        yield
    finally:
        # A TLS transport that was closed twice has no protocol to ask for: AttributeError.
        if not transport.is_closing() and transport.get_protocol() is protocol:
            transport.set_protocol(inner)
