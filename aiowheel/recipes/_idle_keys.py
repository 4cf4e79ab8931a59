"""Which of many keys has been silent for too long. Rank 3.

Source: the idle-connection question of 100,000 clients and one ring of buckets; here a touch does
not move the key from bucket to bucket, it writes down a later deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._shared import current_timer
from aiowheel.timer._timer import Timer


@mypyc_attr(acyclic=True)
class IdleAlarm(Alarm):
    """The deadline of one key; the payload is its detector."""

    __slots__ = ("key",)

    def __init__(self, deadline: i64, detector: object, key: object) -> None:
        super().__init__(deadline, detector)
        self.key = key

    def fire(self) -> None:
        detector = cast("IdleKeys", self._payload)
        self._payload = None
        detector._expired(self.key)

    def drop(self) -> None:
        detector = cast("IdleKeys", self._payload)
        key = self.key
        self._payload = None
        self.key = None
        detector._forget(key)


@mypyc_attr(allow_interpreted_subclasses=True)
class IdleKeys:
    """The compiled half of `IdleDetector`, which says what it does."""

    def __init__(self, timeout: object, on_idle: object, *, timer: Timer | None = None) -> None:
        self._timeout_ns: i64 = delay_to_ns("timeout", timeout)
        if not 0 < self._timeout_ns < FOREVER:
            raise ValueError(f"timeout must be more than 0 and finite, got {timeout!r}")
        if not callable(on_idle) or iscoroutinefunction(on_idle):
            raise TypeError(f"on_idle must be a plain callable, got {on_idle!r}")
        self._on_idle: Callable[[object], object] = on_idle
        # The driver and not the timer: pending alarms keep the detector alive, and through it they
        # would keep a timer that everybody else has dropped.
        self._driver = (current_timer() if timer is None else timer).open_driver()
        self._alarms: dict[object, IdleAlarm] = {}

    def touch(self, key: object) -> None:
        """See `IdleDetector.touch`."""
        driver = self._driver
        now = driver.checked_now()
        # Due strictly after the timeout: one nanosecond later, so that a tie is no silence.
        deadline = now + self._timeout_ns + 1
        alarm = self._alarms.get(key)
        if alarm is not None and alarm._deadline <= now:
            # Timers are late, by up to a tick where the loop is not busy: the key had fallen idle
            # before this touch, which begins anew, unless `on_idle` has done so.
            if alarm.pending:
                driver.fire_due(alarm, now)
            alarm = self._alarms.get(key)
            if alarm is not None and not alarm.pending:  # see `_forget`
                alarm = None
        if alarm is None:
            alarm = IdleAlarm(deadline, self, key)
            driver.arm(alarm, now)
            self._alarms[key] = alarm
        else:
            driver.move(alarm, deadline)

    def discard(self, key: object) -> bool:
        """See `IdleDetector.discard`."""
        alarm = self._alarms.pop(key, None)
        return alarm is not None and alarm.cancel()

    def _expired(self, key: object) -> None:
        self._forget(key)
        self._on_idle(key)

    def _forget(self, key: object) -> None:
        try:
            del self._alarms[key]
        except Exception:
            # A key that hashes or compares otherwise by now. Its finished alarm stays, for others
            # must not miss their end on its account.
            return

    def __len__(self) -> int:
        return len(self._alarms)

    def __contains__(self, key: object) -> bool:
        return key in self._alarms
