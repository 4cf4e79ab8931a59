"""A wheel loop keeps asyncio's promises about timers, on both base loops."""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

import aiowheel
from aiowheel.errors import MissingExtraError
from aiowheel.loop import WheelEventLoopMixin, WheelSelectorEventLoop, new_event_loop
from aiowheel.loop._run import _uvloop_class

uvloop = pytest.importorskip("uvloop")

pytestmark = pytest.mark.realtime  # the loops under test cannot be virtual


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("delay", [0, 0.0, -1, -1e9])
def test_delays_of_nothing_run_on_a_later_pass(
    loop: asyncio.AbstractEventLoop, delay: float
) -> None:
    """They never run inside the call; on asyncio they run after earlier `call_soon` callbacks."""
    order: list[str] = []

    async def main() -> None:
        done = loop.create_future()
        loop.call_later(delay, order.append, "timer")
        loop.call_later(delay, done.set_result, None)
        assert order == []
        loop.call_soon(order.append, "soon")
        await done

    loop.run_until_complete(main())

    if isinstance(loop, WheelSelectorEventLoop):
        assert order == ["soon", "timer"]
    assert sorted(order) == ["soon", "timer"]  # uvloop treats a delay of 0 as a call_soon


def test_overdue_callbacks_run_in_the_order_of_their_times(loop: asyncio.AbstractEventLoop) -> None:
    """Callbacks armed for the past run in the order of their times, not of the calls."""
    order: list[int] = []
    now = loop.time()
    for ago in (1, 5, 3, 5, 2):
        loop.call_at(now - ago, order.append, ago)

    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))

    assert order == [5, 5, 3, 2, 1]


def test_overdue_callbacks_run_in_the_order_of_their_times_if_the_loop_was_blocked(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """It makes no difference whether a callback was armed before or after its time."""
    order: list[int] = []

    async def main() -> None:
        now = loop.time()
        loop.call_at(now + 0.005, order.append, 5)
        loop.call_at(now + 0.010, order.append, 10)
        time.sleep(0.020)  # noqa: ASYNC251 - blocks the loop on purpose
        loop.call_later(0, order.append, 20)
        loop.call_at(now + 0.0075, order.append, 7)
        loop.call_at(now + 0.002, order.append, 2)
        await asyncio.sleep(0.005)

    loop.run_until_complete(main())

    assert order == [2, 5, 7, 10, 20]


@pytest.mark.parametrize("delay", [math.inf, 1e300, 10**400, 2**63])
def test_huge_delays_never_fire_and_can_be_cancelled(
    loop: asyncio.AbstractEventLoop, delay: float
) -> None:
    """There is no overflow, no wake-up and no early firing."""
    handle = loop.call_later(delay, nothing)

    loop.run_until_complete(asyncio.sleep(0))

    assert not handle.cancelled()
    handle.cancel()


@pytest.mark.parametrize("method", ["call_later", "call_at"])
def test_bad_times_are_refused(loop: asyncio.AbstractEventLoop, method: str) -> None:
    """None raises TypeError as in asyncio, NaN raises ValueError, and nothing is armed."""
    call: Callable[..., object] = getattr(loop, method)

    with pytest.raises(TypeError, match="None"):
        call(None, nothing)
    name = {"call_later": "delay", "call_at": "when"}[method]
    with pytest.raises(ValueError, match=f"{name} must be a number .* other than NaN, got nan"):
        call(math.nan, nothing)
    with pytest.raises(TypeError, match="number"):
        call("1", nothing)


def test_a_callback_runs_in_the_context_given_or_captured(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """The callback sees the caller's variables, and its changes stay in its context."""
    variable = contextvars.ContextVar("variable", default="nobody")
    seen: list[str] = []

    def record_context() -> None:
        seen.append(variable.get())
        variable.set("changed")

    async def main() -> None:
        given = contextvars.copy_context()
        given.run(variable.set, "given")
        variable.set("caller")
        loop.call_later(0, record_context)
        loop.call_later(0, record_context, context=given)
        loop.call_later(0, record_context)
        await asyncio.sleep(0.002)

    loop.run_until_complete(main())

    assert seen == ["caller", "given", "caller"]


def test_sleeps_and_timeouts_of_asyncio_use_the_wheel(loop: asyncio.AbstractEventLoop) -> None:
    """With a thousand of them the base loop has at most one timer."""
    assert isinstance(loop, WheelEventLoopMixin)

    scopes: list[asyncio.Timeout] = []

    async def one() -> bool:
        try:
            async with asyncio.timeout(3600) as scope:
                scopes.append(scope)
                await asyncio.sleep(7200)
        except TimeoutError:
            return True
        return False

    async def main() -> list[bool]:
        sleepers = [asyncio.ensure_future(one()) for _ in range(1_000)]
        await asyncio.sleep(0)
        assert loop._wheel_driver.counts.pending == 2_000
        for scope in scopes:
            scope.reschedule(loop.time() + 0.01)
        return await asyncio.gather(*sleepers)

    assert all(loop.run_until_complete(main()))
    assert loop._wheel_driver.counts.pending == 0


@pytest.mark.parametrize("base", ["asyncio", "uvloop"])
def test_one_timer_of_the_base_loop_is_armed_at_most(base: str) -> None:
    """The base loop's own methods count after each timer is armed or cancelled."""
    armed: list[asyncio.TimerHandle] = []
    counts: list[int] = []

    def live() -> int:
        now = asyncio.get_running_loop().time()
        return sum(not handle.cancelled() and handle.when() > now for handle in armed)

    def recorded(call: Callable[..., asyncio.TimerHandle]) -> Callable[..., asyncio.TimerHandle]:
        def call_and_record(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            armed.append(call(*args, **kwargs))
            return armed[-1]

        return call_and_record

    kind: Any = asyncio.SelectorEventLoop if base == "asyncio" else uvloop.Loop
    method = "call_at" if base == "asyncio" else "call_later"
    counting = type("Counting", (kind,), {method: recorded(getattr(kind, method))})
    loop_class: Any = type("Loop", (WheelEventLoopMixin, counting), {})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        handles: list[asyncio.TimerHandle] = []
        start = loop.time() + 600
        for delay in range(60, 0, -1):
            handles.append(loop.call_at(start + delay, nothing))
            counts.append(live())
        for handle in handles[::2]:
            handle.cancel()
            counts.append(live())
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop_class) as runner:
        runner.run(main())

    assert len(armed) >= 60
    assert max(counts) == 1


def test_nothing_fires_early(loop: asyncio.AbstractEventLoop) -> None:
    """Timers are not early by a clock tick, as asyncio's may be, or by 1 ms, as uvloop's."""
    early: list[float] = []

    async def main() -> None:
        def note(when: float) -> None:
            early.append(loop.time() - when)

        for step in range(50):
            when = loop.time() + step * 0.00037
            loop.call_at(when, note, when)
        await asyncio.sleep(0.03)

    loop.run_until_complete(main())

    assert len(early) == 50
    assert min(early) >= 0


def test_a_closed_loop_arms_nothing_and_drops_what_was_pending(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """As in asyncio calls raise RuntimeError, and old handles stay usable."""
    handle = loop.call_later(60, nothing)

    loop.close()

    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, nothing)
    assert handle.cancelled()
    handle.cancel()


def test_an_overridden_call_later_is_used() -> None:
    """The fast path of the instance must not hide an override."""
    calls: list[float] = []

    class Loop(WheelSelectorEventLoop):
        def call_later(
            self,
            delay: float,
            callback: Callable[..., object],
            *args: object,
            context: contextvars.Context | None = None,
        ) -> asyncio.TimerHandle:
            calls.append(delay)
            return super().call_later(delay, callback, *args, context=context)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(asyncio.sleep(0.001))

    assert calls[0] == 0.001


@pytest.mark.parametrize("base", [WheelSelectorEventLoop, _uvloop_class()])
def test_timers_use_an_overridden_clock(base: Any) -> None:
    """That of a wheel loop's class, on both base loops; a `Timer` on the loop uses it as well."""
    readings: list[float] = []

    class Loop(base):  # type: ignore[misc]
        def time(self) -> float:
            readings.append(time.monotonic() + 1000)
            return readings[-1]

    async def main() -> None:
        for guarded in (asyncio.sleep(0.01), aiowheel.sleep(0.01)):
            begun = time.monotonic()
            async with asyncio.timeout(60):
                await guarded
            assert time.monotonic() - begun >= 0.01

    with asyncio.Runner(loop_factory=Loop) as runner:
        stop = threading.Timer(60, lambda: runner.get_loop().call_soon_threadsafe(_interrupt))
        stop.start()
        runner.run(main())
        stop.cancel()

    assert readings


def _interrupt() -> None:
    raise KeyboardInterrupt("a timer was still pending after a minute")


def test_an_overridden_call_at_receives_every_timer() -> None:
    """On asyncio's loops, too, `call_later` ends in `call_at`."""
    calls: list[float] = []

    class Loop(WheelSelectorEventLoop):
        def call_at(
            self,
            when: float,
            callback: Callable[..., object],
            *args: object,
            context: contextvars.Context | None = None,
        ) -> asyncio.TimerHandle:
            calls.append(when)
            return super().call_at(when, callback, *args, context=context)

    loop = Loop()
    later, at = loop.call_later(60, nothing), loop.call_at(2e9, nothing)
    with pytest.raises(TypeError, match="delay must not be None"):
        loop.call_later(cast(float, None), nothing)
    loop.close()

    assert calls == [later.when(), at.when()]


def test_an_overridden_clock_is_used() -> None:
    """Delays use the overridden `time`, which may stand still and jump."""
    now = 5.0

    class Loop(WheelSelectorEventLoop):
        def time(self) -> float:
            return now

    loop = Loop()
    ran: list[str] = []
    assert loop.call_later(10, ran.append, "late").when() == 15.0
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == []

    now = 15.0
    loop.call_later(0, loop.stop)
    loop.run_forever()
    loop.close()

    assert ran == ["late"]


def test_run_uses_the_given_base_loop() -> None:
    """`uvloop=False` selects asyncio's loop, True uvloop's; other values raise."""

    async def base() -> str:
        return type(asyncio.get_running_loop()).__mro__[2].__module__

    assert aiowheel.run(base(), uvloop=False).startswith("asyncio")
    assert aiowheel.run(base(), uvloop=True).startswith("uvloop")
    for word in ("yes", 0, list[str]()):  # 0 is not False and must not mean "auto"
        with pytest.raises(ValueError, match='True, False or "auto"'):
            new_event_loop(uvloop=cast(bool, word))


def test_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is asyncio's loop; `uvloop=True` names the extra to install."""
    monkeypatch.setitem(sys.modules, "uvloop", None)  # the import then raises ImportError
    _uvloop_class.cache_clear()

    loop = new_event_loop()
    loop.close()

    assert isinstance(loop, WheelSelectorEventLoop)
    with pytest.raises(MissingExtraError, match=r"aiowheel\[uvloop\]"):
        new_event_loop(uvloop=True)


def test_the_shared_timer_works_on_a_wheel_loop() -> None:
    """Its single alarm is an entry of the loop's own wheel."""

    async def main() -> bool:
        try:
            async with aiowheel.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            return True
        return False

    assert aiowheel.run(main(), uvloop=False)


def test_the_alarm_of_a_timer_is_not_logged_as_a_slow_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It fires many short callbacks of a timer that is behind; a slow one is logged by itself."""
    now = 5.0

    class Loop(WheelSelectorEventLoop):
        def time(self) -> float:
            return now

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def main() -> None:
        async with aiowheel.Timer() as timer:
            for delay, took in ((1, 0.01), (1, 0.01), (60, 0.09), (60, 0.09), (60, 0.25)):
                timer.call_later(delay, work, took)
            for busy in (1, 1, 1, 1, 60, 1, 1):
                work(busy)
                await asyncio.sleep(0)
            assert (timer.statistics().fired, timer.statistics().wakeups) == (5, 3)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())

    (text,) = [record.getMessage() for record in caplog.records]
    assert "aiowheel.slow_callback" in text
    assert "work" in text


async def test_run_is_refused_while_a_loop_runs() -> None:
    """The error is that of `asyncio.run`, and no loop is made that would have to be closed."""
    main = asyncio.sleep(0)

    with pytest.raises(RuntimeError, match=r"^aiowheel.run\(\) cannot be called from a running"):
        aiowheel.run(main)

    main.close()
