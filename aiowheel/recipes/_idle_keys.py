"""The compiled part of `IdleDetector`: one pending deadline for each key. Rank 3.

Source: the idle timeouts of servers with 100,000 clients, on one ring of buckets. Here, a touch
does not move the key to another bucket; it only writes a later deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from typing import cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import refuse_unhashable
from aiowheel._callbacks import START_A_TASK, plain_callback, refuse_coroutine
from aiowheel._types import Delay
from aiowheel._units import checked_span, ns_to_seconds
from aiowheel.errors import IdleDetectorClosedError
from aiowheel.timer._driver import Driver, TimerTask
from aiowheel.timer._shared import chosen_timer


@mypyc_attr(acyclic=True)
class IdleAlarm(TimerTask):
    """The deadline of one key; its payload is the detector."""

    __slots__ = ("key",)

    def __init__(self, deadline: i64, detector: object, key: object) -> None:
        super().__init__(deadline, detector)
        self.key = key

    def fire(self) -> None:
        detector = cast("IdleKeys", self.payload)
        super().drop()
        detector._forget(self.key, self)
        detector._expired(self.key)

    def drop(self) -> None:
        detector = cast("IdleKeys", self._payload)
        key = self.key
        self._payload = None
        self.key = None
        detector._forget(key, self)


@mypyc_attr(allow_interpreted_subclasses=True)
class IdleKeys:
    """Keys and their deadlines; `IdleDetector` documents each method."""

    # Defaults for a subclass that does not call `super().__init__()`. The driver is also None after
    # `aclose`, so that one test in `touch` finds both cases.
    _driver: Driver | None = None
    _alarms: dict[object, IdleAlarm] | None = None

    def __init__(self, timeout: Delay, on_idle: object, *, timer: object = None) -> None:
        self._timeout_ns: i64 = checked_span("timeout", timeout, 1)
        self._on_idle: Callable[..., object] = plain_callback("on_idle", on_idle, START_A_TASK)
        self._context: Context = copy_context()
        # The detector does not store the timer: pending alarms refer to the detector, and would
        # keep a timer alive that the application has dropped.
        self._driver = chosen_timer(timer).open_driver()
        self._alarms = {}

    def touch(self, key: object) -> None:
        """Restart the timeout of *key*, and watch it if it is new."""
        driver = self._driver
        alarms = self._alarms
        if driver is None or alarms is None:
            raise self._unusable()
        now = driver.checked_now()
        # One nanosecond after the timeout, because a touch exactly at the timeout is in time.
        deadline = now + self._timeout_ns + 1
        try:
            alarm = alarms.get(key)
        except TypeError:
            refuse_unhashable("key", key)
            raise
        if alarm is not None and alarm.late_at(now) >= 0:
            # The timer fires up to a tick late; the key fell idle before this touch.
            if alarm.pending:
                driver.fire_due(alarm, now)
            if self._driver is None:
                raise self._unusable()
            # `on_idle` may have taken time, and may have touched the key.
            now = driver.checked_now()
            deadline = now + self._timeout_ns + 1
            alarm = alarms.get(key)
            if alarm is not None and not alarm.pending:  # see `_forget`
                self._forget(key, alarm)
                alarm = None
        if alarm is None:
            alarm = IdleAlarm(deadline, self, key)
            if alarms.setdefault(key, alarm) is not alarm:
                return  # the hash of the key has run code that touches the key
            try:
                driver.arm(alarm, now)
            except BaseException:
                self._forget(key, alarm)
                raise
        else:
            driver.move(alarm, deadline, now)

    def discard(self, key: object) -> bool:
        """Stop watching *key* without calling `on_idle`; return whether it was watched."""
        alarms = self._watched()
        driver = self._driver
        if driver is None or driver.closed:
            return False
        driver.checked_now()
        try:
            alarm = alarms.pop(key, None)
        except TypeError:
            refuse_unhashable("key", key)
            raise
        if alarm is None:
            refuse_unhashable("key", key)  # `pop` of an empty dict does not compute the hash
        return alarm is not None and alarm.cancel()

    def expires(self, key: object) -> float | None:
        """Return the time at which *key* falls idle, or None."""
        try:
            alarm = self._watched().get(key)
        except TypeError:
            refuse_unhashable("key", key)
            raise
        if alarm is None or not alarm.pending:
            return None
        return ns_to_seconds(alarm.deadline - 1)

    def _close(self) -> None:
        """Stop watching every key; a later `touch` raises."""
        alarms = self._watched()
        driver = self._driver
        if driver is None:
            return
        if not driver.closed:
            driver.check()
        self._driver = None
        self._alarms = {}
        for alarm in alarms.values():
            alarm.cancel()

    def _expired(self, key: object) -> None:
        # A copy, because a context cannot be entered twice, and `on_idle` may touch a late key.
        result = self._context.copy().run(self._on_idle, key)
        if result is not None:
            refuse_coroutine("on_idle", result, START_A_TASK)

    def _forget(self, key: object, alarm: IdleAlarm) -> None:
        alarms = self._alarms
        if alarms is None:
            return
        try:
            if alarms.get(key) is alarm:  # a key that has changed may equal another one now
                del alarms[key]
        except Exception:
            # The hash or the equality of the key has changed. Its finished alarm stays, because an
            # error here would prevent the other keys from ending.
            return

    def _watched(self) -> dict[object, IdleAlarm]:
        alarms = self._alarms
        if alarms is None:
            raise self._unusable()
        return alarms

    def _unusable(self) -> Exception:
        if self._alarms is None:
            return RuntimeError(f"{type(self).__name__}.__init__ must call super().__init__()")
        return IdleDetectorClosedError("the idle detector has been closed")

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it owns its deadlines")

    def __bool__(self) -> bool:
        return True  # `detector or default` must not replace a detector without keys

    def __len__(self) -> int:
        return len(self._watched())

    def __contains__(self, key: object) -> bool:
        try:
            return key in self._watched()
        except TypeError:
            refuse_unhashable("key", key)
            raise

    def __iter__(self) -> Iterator[object]:
        return iter(list(self._watched()))
