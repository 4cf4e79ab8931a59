"""What turns the wheel: reads the clock, fires what is due, says when to come back. Rank 1.

Sources: Kafka's SystemTimer and its reaper thread, here without the thread; tokio's time driver.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop
from collections.abc import Callable
from threading import current_thread, get_ident
from typing import Final, cast

from mypy_extensions import i64

from aiowheel._events import emit
from aiowheel._units import FOREVER, clock_to_ns, ns_to_seconds
from aiowheel.errors import ForeignLoopError, TimerClosedError
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._histogram import Histogram
from aiowheel.wheel._tally import Tally
from aiowheel.wheel._wheel import TimingWheel

_get_ident: Final = get_ident  # a static of the compiled module, not a look-up per call

BUDGET_NS: Final = 5_000_000  #: how long one slice may keep the loop
SLOW_NS: Final = 100_000_000  #: from here on a callback is named in a log event
_RUNNING: Final = -1  # in _armed_ns: nothing is earlier, so nothing re-arms inside a slice


class Driver(Tally):
    """Owns a wheel in nanoseconds and a clock; subclasses own the waiting.

    The driver is the tally of its wheel, which is how a handle finds it. It never refers to the
    `Timer` in front of it: dropping that one frees everything behind.

    Args:
        clock: Returns seconds; may stand still and may jump, and steps back are waited out.
        tick_ns: Width of a bucket.
        wheel_size: Buckets a level.
    """

    def __init__(self, clock: Callable[[], float], tick_ns: int, wheel_size: int) -> None:
        super().__init__()
        self.clock = clock
        self.loop: AbstractEventLoop | None = None  # None: no loop is asked for
        self.closed = False
        self._owner_thread = get_ident()
        self._verified_until: i64 = -FOREVER
        self.fired: i64 = 0
        self.callback_errors: i64 = 0
        self.wakeups: i64 = 0
        self.lateness = Histogram()
        #: How long a look at the running loop holds: it costs a system call on Python 3.11, as
        #: much as all the rest of `call_later`. Only a clock that never stands still can tell.
        self.verified_for_ns: i64 = 0
        self._armed_ns: i64 = FOREVER  # when the subclass will come back by itself
        self.wheel = TimingWheel(tick_ns, wheel_size, clock_to_ns(clock()), tally=self)

    def now_ns(self) -> i64:
        """The clock's time."""
        return clock_to_ns(self.clock())

    def deadline_after(self, delay_ns: i64) -> i64:
        """The deadline *delay_ns* from now."""
        return min(self.now_ns() + delay_ns, FOREVER)

    # --- callers ----------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a caller when closed, or on another loop or thread than the driver's."""
        if self.closed:
            raise TimerClosedError("the timer has been closed")
        loop = self.loop
        if loop is not None and _get_running_loop() is not loop:
            raise ForeignLoopError(
                f"the timer belongs to {loop!r}, but was called from {_get_running_loop()!r} in "
                f"thread {current_thread().name!r}; from threads use the *_threadsafe calls"
            )

    def checked_now(self) -> i64:
        """The clock's time; checks as `check` does, though not the running loop at every call."""
        now = self.now_ns()
        if now >= self._verified_until or self.closed or _get_ident() != self._owner_thread:
            self.check()
            self._verified_until = now + self.verified_for_ns
        return now

    # --- arming -----------------------------------------------------------------------------

    def arm(self, alarm: Alarm, now_ns: i64) -> None:
        """File *alarm*; *now_ns* is a fresh reading of the clock. O(1)."""
        wheel = self.wheel
        wheel.forward(now_ns)
        if alarm._deadline <= now_ns:
            wheel.witness(now_ns)
        wheel.arm(alarm)
        if alarm._deadline < self._armed_ns:
            try:
                self._come_back_for(alarm)
            except BaseException:  # the loop is closed, say: leave no deadline that nobody keeps
                alarm.cancel()
                raise

    def move(self, alarm: Alarm, deadline: i64) -> None:
        """Give a pending *alarm* another deadline. One write when later, O(1) when earlier."""
        if deadline >= self._armed_ns:
            self.wheel.move(alarm, deadline)
            return
        now = self.now_ns()
        if deadline <= now:
            self.wheel.witness(now)
        self.wheel.move(alarm, deadline)
        self._come_back_for(alarm)

    def _come_back_for(self, alarm: Alarm) -> None:
        due = self.wheel.due_at(alarm)
        if due < self._armed_ns:
            self.wake_at(due)

    def wake_at(self, due_ns: i64) -> None:
        """Have `run_slice` called at *due_ns*, earlier than was promised before."""
        raise NotImplementedError

    def wake_again(self) -> None:
        """Have `run_slice` called once everybody else had a turn."""
        raise NotImplementedError

    # --- firing -----------------------------------------------------------------------------

    def run_slice(self) -> None:
        """Fire what is due, for as long as the budget allows; the rest after a turn of the loop.

        Re-reads the clock first: event loops wake up to a clock tick, uvloop up to a millisecond,
        before the time they were asked for. Between slices whatever has not fired can still be
        cancelled or moved, and what is armed meanwhile waits for its turn.
        """
        wheel = self.wheel
        try:
            self._armed_ns = _RUNNING
            now = self.now_ns()
            limit = now + BUDGET_NS
            self.wakeups += 1
            # Behind the wheel the clock was set back: nothing is due before it has caught up.
            if not wheel.pass_is_open() and now >= wheel._now:
                wheel.open_pass(now)
            while wheel.pass_is_open():
                entry = wheel.pop_due()
                if entry is not None:
                    now = self._fire(cast(Alarm, entry), now)
                else:
                    now = self.now_ns()
                if now >= limit:
                    break
        finally:
            self._armed_ns = FOREVER
            self._rearm()

    def fire_due(self, alarm: Alarm, now: i64) -> None:
        """Fire a pending *alarm* that is due at *now*, though the wheel has not come to it yet."""
        self.wheel.take(alarm)
        self._fire(alarm, now)

    def _fire(self, alarm: Alarm, now: i64) -> i64:
        """Run one alarm; return the time after it."""
        target = alarm._payload
        late = now - alarm._deadline
        if late < 0:  # the clock was set back inside this slice, or the wheel has a bug
            emit("aiowheel.fired_early", callback=named(target), seconds=ns_to_seconds(-late))
        self.fired += 1
        self.lateness.record(late)
        try:
            alarm.fire()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # one bad callback must not silence the others
            self.callback_errors += 1
            self.report(
                {
                    "message": f"Exception in timer callback {named(target)}",
                    "exception": error,
                    "handle": alarm,
                }
            )
        after = self.now_ns()
        if after - now >= SLOW_NS:
            took = ns_to_seconds(after - now)
            emit("aiowheel.slow_callback", callback=named(target), seconds=took)
        return after

    def report(self, context: dict[str, object]) -> None:
        """Tell somebody of a failure; *context* is that of a loop's exception handler."""
        raise NotImplementedError

    def _rearm(self) -> None:
        if self.wheel.pass_is_open():
            self.wake_again()
            self._armed_ns = _RUNNING
            return
        upcoming = self.wheel.next_expiration()
        if upcoming is not None:
            self.wake_at(upcoming)

    def close(self) -> list[Alarm]:
        """Stop for good; returns what was pending, dropped."""
        self.closed = True
        alarms = [cast(Alarm, entry) for entry in self.wheel.clear()]
        for alarm in alarms:
            alarm.drop()
        return alarms


def named(callback: object) -> str:
    """Its `repr`; where that raises, one that cannot: no report is lost to a name."""
    try:
        return repr(callback)
    except Exception:
        return object.__repr__(callback)
