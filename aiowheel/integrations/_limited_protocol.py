"""Limits and a heartbeat for an asyncio protocol. Rank 4."""

from __future__ import annotations

from asyncio import (
    BaseTransport,
    BufferedProtocol,
    DatagramProtocol,
    Protocol,
    SubprocessProtocol,
    Transport,
)
from collections.abc import Callable
from typing import cast

from aiowheel._callbacks import START_A_TASK, plain_callback
from aiowheel._types import Delay
from aiowheel.integrations._connection_watch import ConnectionWatch, Limit
from aiowheel.integrations._limits import beyond_ns, heartbeat_ns
from aiowheel.integrations._touching import receiver
from aiowheel.timer import Timer


class LimitedProtocol(Protocol):
    """An asyncio protocol that pings a silent peer and aborts a connection beyond its limits.

    A base class, or a mixin before another protocol:
    `class Limited(LimitedProtocol, TheirProtocol): idle_timeout = 60`. Set the attributes in the
    class, or in the instance before `connection_made`. A subclass that overrides `connection_made`,
    `data_received` or `connection_lost` calls `super()`'s.

    With `heartbeat_interval = 20` and `idle_timeout = 60` a silent peer gets `send_heartbeat` after
    20 and 40 seconds, and after 60 the connection is aborted. Received data starts the count again.
    Limits and heartbeat of a connection share one pending timer.

    They end without a call when another protocol takes over the connection with `set_protocol`, as
    after an HTTP upgrade. After `start_tls`, set `transport` to the new transport.

    Attributes:
        idle_timeout: The longest silence, in seconds or as timedelta; None for no limit.
        first_byte_timeout: The longest silence before the first byte; default: as *idle_timeout*.
        total_timeout: The longest time of the whole connection; None for no limit.
        heartbeat_interval: The silence after which `send_heartbeat` is called, less than
            *idle_timeout*; None for no heartbeat.
        timer: Default: the running loop's shared timer.
        transport: The connection's transport, from `connection_made` on.

    Raises:
        TypeError: A subclass is also a `BufferedProtocol`, `DatagramProtocol` or
            `SubprocessProtocol`, which receive no chunks, or one of its hooks is a coroutine
            function.
    """

    idle_timeout: Delay | None = None
    first_byte_timeout: Delay | None = None
    total_timeout: Delay | None = None
    heartbeat_interval: Delay | None = None
    timer: Timer | None = None
    transport: Transport
    _watch: ConnectionWatch | None = None
    _on_transport = False

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for kind in BufferedProtocol, DatagramProtocol, SubprocessProtocol:
            if issubclass(cls, kind):
                raise TypeError(f"{cls!r} must not be a {kind.__name__}, which receives no chunks")
        plain_callback("limit_exceeded", cls.limit_exceeded, START_A_TASK)
        plain_callback("send_heartbeat", cls.send_heartbeat, START_A_TASK)

    def connection_made(self, transport: BaseTransport) -> None:
        """Start watching the connection, or watch it anew, as after a TLS upgrade.

        Raises:
            ValueError: A limit or the heartbeat is out of range.
            TypeError: A limit is no number, or `heartbeat_interval` is set and `send_heartbeat` is
                not overridden.
            TimerClosedError: The timer is not open.
        """
        self.transport = cast(Transport, transport)
        if self._watch is not None:
            self._watch.close()
        try:
            self._watch = self._new_watch()
        except BaseException:  # a closed timer: a connection without limits must not stay open
            self._abort()
            raise
        self._on_transport = receiver(transport) is self
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """End the silence."""
        watch = self._watch
        if watch is not None:
            watch.touch()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._watch is None:  # refused: another protocol's `connection_made` was not called
            return
        self._watch.close()
        super().connection_lost(exc)

    def touch(self) -> None:
        """End the silence for another reason than received data, such as sent data."""
        if self._watch is not None:
            self._watch.touch()

    def limit_exceeded(self, limit: Limit) -> None:  # noqa: ARG002 - for a subclass
        """Abort the connection. Override this method to send a last message first."""
        self._abort()

    def send_heartbeat(self) -> None:
        """Send a ping that the peer answers; override it to use `heartbeat_interval`.

        Raises:
            NotImplementedError: It is not overridden.
        """
        raise NotImplementedError

    def _new_watch(self) -> ConnectionWatch:
        # Checked here so that errors name the attributes; the watch has other names for them.
        beyond_ns("idle_timeout", self.idle_timeout)
        beyond_ns("first_byte_timeout", self.first_byte_timeout)
        beyond_ns("total_timeout", self.total_timeout)
        beat = self.heartbeat_interval
        heartbeat_ns("heartbeat_interval", beat, "idle_timeout", self.idle_timeout)
        if beat is not None and type(self).send_heartbeat is LimitedProtocol.send_heartbeat:
            raise TypeError(
                f"{type(self).__name__} must override send_heartbeat to use heartbeat_interval"
            )
        return ConnectionWatch(
            self._limit_reached,
            idle=self.idle_timeout,
            first_byte=self.first_byte_timeout,
            total=self.total_timeout,
            heartbeat=beat,
            on_heartbeat=None if beat is None else self._heartbeat_due,
            timer=self.timer,
        )

    def _abort(self) -> None:
        try:
            self.transport.abort()
        except (AttributeError, NotImplementedError):  # a pipe for reading
            self.transport.close()

    def _limit_reached(self, limit: Limit) -> object:
        hook: Callable[[Limit], object] = self.limit_exceeded
        return None if self._is_handed_over() else hook(limit)

    def _heartbeat_due(self) -> object:
        hook: Callable[[], object] = self.send_heartbeat
        if self._watch is not None and self._is_handed_over():
            self._watch.close()
            return None
        return hook()

    def _is_handed_over(self) -> bool:
        # A protocol behind another one, which passes data on to it, is never the transport's.
        current = receiver(self.transport) if self._on_transport else None
        return current is not None and current is not self
