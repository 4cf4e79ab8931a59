"""A callback for every chunk that a transport receives. Rank 4.

A callback per message would not do: a peer that slowly sends a long message is not silent.
"""

from __future__ import annotations

from asyncio import BaseProtocol, BaseTransport, BufferedProtocol, DatagramProtocol, Protocol
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import START_A_TASK, plain_callback

# Protocols of asyncio and uvloop that serve another protocol: one decrypts for it, the other stands
# in for it while a file is sent. uvloop's does not name the other protocol.
_SERVING = frozenset({"SSLProtocol", "_SendfileFallbackProtocol"})


class _TouchingProtocol(Protocol):
    """A protocol that calls *touch* for every chunk and passes everything on to *inner*."""

    __slots__ = ("_touch", "inner")

    def __init__(self, inner: Protocol, touch: Callable[[], object]) -> None:
        self.inner = inner
        self._touch = touch

    def data_received(self, data: bytes) -> None:
        self._touch()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)


@contextmanager
def touching(transport: BaseTransport, touch: Callable[[], object]) -> Generator[None]:
    """Call *touch* for every chunk that *transport* receives during the block.

    Chunks include control frames and parts of messages. `start_tls` replaces the transport, so
    enter the block after it.

    Args:
        transport: A stream's `writer.transport`, or the `transport` of a connection of the
            websockets library.
        touch: A plain function without arguments; it must not raise.

    Raises:
        TypeError: The transport's protocol is a `BufferedProtocol` or a `DatagramProtocol`, which
            receive no chunks, or *touch* is not a plain function.

    Cost: two calls per chunk.
    """
    plain_callback("touch", touch, START_A_TASK)
    if transport.is_closing():  # receives nothing; and see below
        yield
        return
    inner = transport.get_protocol()
    for kind in BufferedProtocol, DatagramProtocol:
        if isinstance(inner, kind):
            raise TypeError(
                f"the transport's protocol must not be a {kind.__name__}, which receives no "
                f"chunks, got {safe_repr(inner)}"
            )
    protocol = _TouchingProtocol(cast(Protocol, inner), touch)
    transport.set_protocol(protocol)
    try:
        yield
    finally:
        # get_protocol() of a TLS transport that was closed twice raises AttributeError.
        if not transport.is_closing() and transport.get_protocol() is protocol:
            transport.set_protocol(inner)


def receiver(transport: BaseTransport) -> BaseProtocol | None:
    """Return the protocol that gets the chunks of *transport*, or None if it is unknown."""
    try:
        protocol = transport.get_protocol()
    except (AttributeError, NotImplementedError):  # such as a TLS transport that was closed twice
        return None
    while isinstance(protocol, _TouchingProtocol):
        protocol = protocol.inner
    return None if type(protocol).__name__ in _SERVING else protocol
