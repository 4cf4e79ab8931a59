"""A loop on the wheel keeps asyncio's promises about timers, on both base loops."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

import aiowheel
from aiowheel.loop import WheelEventLoopMixin, WheelSelectorEventLoop, new_event_loop

pytest.importorskip("uvloop")

pytestmark = pytest.mark.realtime  # the loops under test cannot be virtual


@pytest.fixture(params=[False, True], ids=["selector", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A wheel loop on each base, closed afterwards."""
    loop = new_event_loop(uvloop=request.param)
    yield loop
    if not loop.is_closed():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def nothing() -> None:
    """Do nothing."""


def test_handles_pass_for_asyncios(loop: asyncio.AbstractEventLoop) -> None:
    """Code that checks for asyncio's handle class accepts ours."""
    handle = loop.call_later(60, nothing)

    assert isinstance(handle, asyncio.TimerHandle)
    assert not handle.cancelled()
    assert "nothing" in repr(handle)
    handle.cancel()
    assert handle.cancelled()


def test_when_is_exactly_what_was_given(loop: asyncio.AbstractEventLoop) -> None:
    """`when()` gives the float back, not one rounded to nanoseconds."""
    when = loop.time() + 1 / 3

    assert loop.call_at(when, nothing).when() == when


@pytest.mark.parametrize("delay", [0, 0.0, -1, -1e9])
def test_delays_of_nothing_run_on_a_later_pass(
    loop: asyncio.AbstractEventLoop, delay: float
) -> None:
    """Due at once means soon and never inside the call; on asyncio behind what was soon before."""
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
    assert sorted(order) == ["soon", "timer"]  # uvloop takes a delay of 0 for a call_soon


@pytest.mark.parametrize("delay", [math.inf, 1e300, 10**400, 2**63])
def test_huge_delays_never_fire_and_can_be_cancelled(
    loop: asyncio.AbstractEventLoop, delay: float
) -> None:
    """No overflow, no wake-up, no early firing."""
    handle = loop.call_later(delay, nothing)

    loop.run_until_complete(asyncio.sleep(0))

    assert not handle.cancelled()
    handle.cancel()


@pytest.mark.parametrize("method", ["call_later", "call_at"])
def test_bad_times_are_refused(loop: asyncio.AbstractEventLoop, method: str) -> None:
    """None is a TypeError as asyncio's, NaN a ValueError, and nothing is armed."""
    call: Callable[..., object] = getattr(loop, method)

    with pytest.raises(TypeError, match="None"):
        call(None, nothing)
    with pytest.raises(ValueError, match="NaN"):
        call(math.nan, nothing)
    with pytest.raises(TypeError, match="number"):
        call("1", nothing)


def test_a_callback_that_raises_reaches_the_exception_handler(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """With asyncio's wording, the handle, and in debug mode where it was made."""
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    loop.set_debug(True)

    async def main() -> None:
        def fail() -> None:
            raise ZeroDivisionError

        loop.call_later(0, fail)
        await asyncio.sleep(0.002)

    loop.run_until_complete(main())

    (context,) = contexts
    assert str(context["message"]).startswith("Exception in callback")
    assert isinstance(context["exception"], ZeroDivisionError)
    assert isinstance(context["handle"], asyncio.TimerHandle)
    assert "main" in str(context["source_traceback"])


def test_debug_mode_refuses_foreign_threads_and_coroutines(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """What asyncio checks in debug mode, ours does."""
    loop.set_debug(True)
    errors: list[BaseException] = []

    def arm() -> None:
        try:
            loop.call_later(1, nothing)
        except RuntimeError as error:
            errors.append(error)

    async def main() -> None:
        thread = threading.Thread(target=arm)
        thread.start()
        await asyncio.to_thread(thread.join)
        with pytest.raises(TypeError, match="coroutines cannot be used with call_later"):
            loop.call_later(1, main)

    loop.run_until_complete(main())

    assert "Non-thread-safe" in str(errors)


def test_a_callback_runs_in_the_context_given_or_captured(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """The caller's variables are seen, and what a callback sets stays with it."""
    variable = contextvars.ContextVar("variable", default="nobody")
    seen: list[str] = []

    def look() -> None:
        seen.append(variable.get())
        variable.set("changed")

    async def main() -> None:
        given = contextvars.copy_context()
        given.run(variable.set, "given")
        variable.set("caller")
        loop.call_later(0, look)
        loop.call_later(0, look, context=given)
        loop.call_later(0, look)
        await asyncio.sleep(0.002)

    loop.run_until_complete(main())

    assert seen == ["caller", "given", "caller"]


def test_sleeps_and_timeouts_of_asyncio_use_the_wheel(loop: asyncio.AbstractEventLoop) -> None:
    """A thousand of them, and the base loop has one timer at most."""
    assert isinstance(loop, WheelEventLoopMixin)

    async def one() -> bool:
        try:
            async with asyncio.timeout(0.2):
                await asyncio.sleep(60)
        except TimeoutError:
            return True
        return False

    async def main() -> list[bool]:
        sleepers = [asyncio.ensure_future(one()) for _ in range(1_000)]
        await asyncio.sleep(0)
        assert loop._wheel_driver.pending == 2_000
        if isinstance(loop, WheelSelectorEventLoop):
            scheduled = cast("list[asyncio.TimerHandle]", vars(loop)["_scheduled"])
            assert sum(not handle.cancelled() for handle in scheduled) == 1
        return await asyncio.gather(*sleepers)

    assert all(loop.run_until_complete(main()))
    assert loop._wheel_driver.pending == 0


def test_nothing_fires_early(loop: asyncio.AbstractEventLoop) -> None:
    """Not by a clock tick, as asyncio's may, nor by a millisecond, as uvloop's."""
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
    """As asyncio: RuntimeError, and handles stay safe."""
    handle = loop.call_later(60, nothing)

    loop.close()

    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, nothing)
    assert handle.cancelled()
    handle.cancel()


def test_a_subclass_that_overrides_call_later_is_heeded() -> None:
    """The fast path on the instance must not hide an override."""
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


def test_run_chooses_the_base_loop_it_is_told() -> None:
    """`uvloop=False` is asyncio's, True is uvloop's; anything else is refused."""

    async def base() -> str:
        return type(asyncio.get_running_loop()).__mro__[2].__module__

    assert aiowheel.run(base(), uvloop=False).startswith("asyncio")
    assert aiowheel.run(base(), uvloop=True).startswith("uvloop")
    with pytest.raises(ValueError, match='True, False or "auto"'):
        new_event_loop(uvloop="yes")  # type: ignore[arg-type]


def test_the_shared_timer_works_on_a_wheel_loop() -> None:
    """Its one alarm is an entry of the loop's own wheel."""

    async def main() -> bool:
        try:
            async with aiowheel.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            return True
        return False

    assert aiowheel.run(main(), uvloop=False)
