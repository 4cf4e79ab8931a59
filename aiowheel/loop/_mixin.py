"""A mixin for event loops whose own timers are on the wheel. Rank 3."""

from __future__ import annotations

import inspect
import warnings
from asyncio import BaseEventLoop, TimerHandle
from collections.abc import Callable
from contextvars import Context
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack, cast

from aiowheel._arguments import safe_repr
from aiowheel.loop._wheel_driver import SliceTimed, WheelDriver

Ts = TypeVarTuple("Ts")

if TYPE_CHECKING:
    _Base = BaseEventLoop  # both kinds of base have the methods that super() calls
else:
    _Base = object


class WheelEventLoopMixin(_Base):
    """A mixin for event loop classes that makes `call_later` and `call_at` O(1).

    ```python
    class Loop(WheelEventLoopMixin, asyncio.SelectorEventLoop): ...
    ```

    `asyncio.sleep`, `asyncio.timeout` and every library on the loop then use the wheel; the base
    class arms at most one timer of its own. The differences from the base loop:

    - Deadlines are rounded up to a millisecond; those of one millisecond fire in the order they
      were armed. Unlike on the base loops, no deadline fires early: asyncio's own loop may fire a
      clock tick early, uvloop up to one and a half milliseconds.
    - Many callbacks due at once run in slices of 5 ms, with turns of the loop in between. A loop
      that is behind runs longer slices.
    - Handles are instances of `LoopHandle`, whose `cancel()` returns whether the callback was still
      pending.
    - A delay or time that is NaN is an error.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a loop with the arguments of the base class."""
        super().__init__(*args, **kwargs)
        self._running_thread: int | None = None
        # asyncio's call_later calls self.call_at, and uvloop's call_at calls self.call_later, which
        # are overridden here. The alarm needs the method that does not call the other one.
        on_asyncio = BaseEventLoop in type(self).__mro__
        arm_alarm: Callable[..., object] = super().call_at if on_asyncio else super().call_later
        driver = self._wheel_driver = WheelDriver(self, arm_alarm, self._check_timer_caller)
        driver.set_debug(enabled=bool(self.get_debug()))
        own: Any = self  # its methods are replaced below
        # uvloop truncates its own clock to milliseconds, and a delay that is counted from a
        # truncated "now" ends early.
        if driver.reads_monotonic:
            own.time = driver.clock
        # The compiled methods are set on the instance, because a Python frame in between would
        # double their cost. Methods that a subclass overrides are not replaced.
        if type(self).call_at is WheelEventLoopMixin.call_at:
            own.call_at = driver.call_at
            if type(self).call_later is WheelEventLoopMixin.call_later:
                own.call_later = driver.call_later

    def __getattr__(self, name: str) -> Any:
        # For a subclass that does not call `super().__init__()`.
        if name in {"_wheel_driver", "_running_thread"}:
            raise RuntimeError(f"{type(self).__name__}.__init__ must call super().__init__()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Arm as asyncio's `call_later` does, by an overridden `call_at` if there is one. O(1)."""
        if type(self).call_at is not WheelEventLoopMixin.call_at:
            if delay is None:  # pyright: ignore[reportUnnecessaryComparison] - asyncio's own check
                raise TypeError("delay must not be None")
            return self.call_at(self.time() + delay, callback, *args, context=context)
        handle = self._wheel_driver.call_later(delay, callback, *args, context=context)
        return cast(TimerHandle, handle)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Arm as asyncio's `call_at` does. O(1)."""
        handle = self._wheel_driver.call_at(when, callback, *args, context=context)
        return cast(TimerHandle, handle)

    def run_forever(self) -> None:
        """Run as the base loop does, and store the running thread."""
        before, self._running_thread = self._running_thread, get_ident()
        self._wheel_driver.run_in(self._running_thread)
        try:
            super().run_forever()
        finally:
            self._running_thread = before
            self._wheel_driver.run_in(before)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report as the base loop does, except for `SliceTimed`."""
        if not isinstance(context.get("exception"), SliceTimed):
            super().call_exception_handler(context)

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - the base method's signature
        """Set debug mode as the base loop does."""
        super().set_debug(enabled)
        driver = self.__dict__.get("_wheel_driver")  # asyncio's __init__ calls this too
        if driver is not None:
            driver.set_debug(enabled=bool(enabled))

    def close(self) -> None:
        """Close as the base loop does, and drop the pending callbacks."""
        driver = self._wheel_driver
        super().close()
        driver.close()

    def __del__(self) -> None:
        # asyncio's `__del__` warns first, so the loop would stay open if warnings are errors.
        # uvloop has no `__del__` and would keep its descriptors.
        if "_wheel_driver" not in self.__dict__:  # `__init__` failed, or a subclass did not call it
            return
        if self.is_closed() or self.is_running():
            return
        text = f"unclosed event loop {self!r}"
        try:
            self.close()
        finally:
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)

    def _check_timer_caller(self, callback: object, method: str) -> None:
        """Raise the errors that asyncio raises in debug mode."""
        if self._running_thread not in {None, get_ident()}:
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one"
            )
        if inspect.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError(f"coroutines cannot be used with {method}()")
        if not callable(callback):
            raise TypeError(
                f"a callable object was expected by {method}(), got {safe_repr(callback)}"
            )
