"""The context in which a callback runs, and what keeps a context alive."""

import asyncio
import gc
import sys
import weakref
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from aiowheel import IdleDetector, ManualTimer, Timer, TimerHandle

REQUEST: ContextVar[object] = ContextVar("REQUEST", default=None)


class Request:
    """The value of a context variable, which must not stay alive for long."""


def test_the_callers_context_is_captured() -> None:
    """Each call captures the context at the call; later changes do not matter."""
    timer = ManualTimer()
    seen: list[object] = []
    for name in ("first", "second"):
        token = REQUEST.set(name)
        timer.call_later(1, lambda: seen.append(REQUEST.get()))
        REQUEST.reset(token)

    timer.advance(1)

    assert seen == ["first", "second"]


def test_context_changes_of_a_callback_stay_in_its_context() -> None:
    """The context of the caller stays unchanged."""
    timer = ManualTimer()
    context = Context()
    timer.call_later(1, REQUEST.set, "inside", context=context)

    timer.advance(1)

    assert REQUEST.get() is None
    assert context[REQUEST] == "inside"


@pytest.mark.parametrize("with_args", [False, True])
def test_a_given_context_is_used(*, with_args: bool) -> None:
    """The callback runs in that context object, also a bound method without arguments."""
    timer = ManualTimer()
    context = copy_context()
    context.run(REQUEST.set, "given")
    seen: list[object] = []

    class Server:
        def note(self, *args: object) -> None:
            seen.append((REQUEST.get(), *args))

    if with_args:
        handle = timer.call_later(1, Server().note, 5, context=context)
    else:
        handle = timer.call_at(1, Server().note, context=context)
    assert handle.get_context() is context
    timer.advance(1)

    assert seen == ([("given", 5)] if with_args else [("given",)])


def test_an_empty_context_hides_the_callers() -> None:
    """A cache or a pool gives an empty context to timers that outlive a request."""
    timer = ManualTimer()
    REQUEST.set("outside")
    seen: list[object] = []

    timer.call_later(1, lambda: seen.append(REQUEST.get()), context=Context())
    timer.advance(1)
    REQUEST.set(None)

    assert seen == [None]


def arm_with_request(timer: Timer, delay: float) -> tuple[TimerHandle, weakref.ref[Request]]:
    """Arm a timer whose context holds the only reference to a request."""
    request = Request()

    def arm() -> TimerHandle:
        REQUEST.set(request)
        return timer.call_later(delay, int)

    return Context().run(arm), weakref.ref(request)


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("end", ["fire", "cancel", "close"])
async def test_a_finished_timer_releases_its_context_at_once(end: str) -> None:
    """The context goes although the handle is kept; the context of a sibling stays."""
    timer = ManualTimer()
    handle, watched = arm_with_request(timer, 1)
    sibling, kept = arm_with_request(timer, 60)

    assert watched() is not None
    match end:
        case "fire":
            timer.advance(1)
        case "cancel":
            handle.cancel()
        case _:
            await timer.aclose()

    assert watched() is None
    assert (kept() is None) == (end == "close") == sibling.cancelled()


async def use_timer_everywhere() -> tuple[Timer, asyncio.Task[None]]:
    """Enter a timer, sleep on it, bound a block with it and watch a key."""
    timer = Timer()
    await timer.__aenter__()
    detector = IdleDetector[str](60, len, timer=timer)  # runs `len` in the context up to here
    REQUEST.set(Request())
    detector.touch("key")
    sleeper: asyncio.Task[None] = asyncio.create_task(timer.sleep(60), context=Context())
    async with timer.timeout(60):
        await asyncio.sleep(0)
    return timer, sleeper


async def test_internal_timers_capture_no_context() -> None:
    """Sleeps, timeouts, idle deadlines and the driver keep no request alive."""
    context = Context()
    timer, sleeper = await asyncio.create_task(use_timer_everywhere(), context=context)
    await asyncio.sleep(0)  # until then the loop holds the finished task
    request = context[REQUEST]
    assert isinstance(request, Request)
    watched = weakref.ref(request)
    del request, context
    gc.collect()
    left, pending = watched(), len(timer)
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)
    await timer.aclose()

    assert left is None
    assert pending == 2


async def test_the_drivers_alarm_does_not_pass_a_context_on() -> None:
    """A callback that always arms itself again keeps its own context, not that of its waker."""
    async with Timer() as timer:
        seen: list[object] = []
        done = asyncio.get_running_loop().create_future()

        def again(left: int) -> None:
            seen.append(REQUEST.get())
            if left:
                timer.call_later(0, again, left - 1)
            else:
                done.set_result(None)

        Context().run(lambda: (REQUEST.set("chain"), timer.call_later(0, again, 5)))
        Context().run(lambda: (REQUEST.set("other"), timer.call_later(0, int)))
        await done

    assert seen == ["chain"] * 6


@pytest.mark.virtual_time
@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("call", ["call_later", "call_later_threadsafe", "every"])
async def test_the_exception_handler_finds_the_context_of_the_call(call: str) -> None:
    """From Python 3.12, asyncio runs the handler in it, so that logs have the request's id."""
    found: list[object] = []
    reported = asyncio.Event()

    def handle_error(_: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        context = report["handle"].get_context()
        found.append(context[REQUEST])
        found.append(REQUEST.get())
        reported.set()

    def fail() -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(handle_error)
    async with Timer() as timer:
        token = REQUEST.set("request 7")
        handle = getattr(timer, call)(0.001, fail)
        REQUEST.reset(token)
        await reported.wait()
        if call == "every":
            handle.cancel()

        assert found[:2] == ["request 7", "request 7" if sys.version_info >= (3, 12) else None]
        assert handle.get_context() is None


@pytest.mark.virtual_time
async def test_calls_that_end_themselves_are_reported_in_their_context() -> None:
    """The function cancels its calls, and then fails."""
    found: list[object] = []

    def handle_error(_: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        found.append(report["handle"].get_context()[REQUEST])

    def fail() -> None:
        handle.cancel()
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(handle_error)
    async with Timer() as timer:
        token = REQUEST.set("request 7")
        handle = timer.every(1, fail)
        REQUEST.reset(token)
        await asyncio.sleep(2)

        assert found == ["request 7"]
        assert handle.get_context() is None


def test_a_callback_that_ends_the_program_releases_its_context() -> None:
    """The handle, which is kept, would otherwise keep the context alive."""

    def leave() -> None:
        raise SystemExit

    timer = ManualTimer()
    context = Context()
    handle = timer.call_later(1, leave, context=context)
    with pytest.raises(SystemExit):
        timer.advance(1)

    assert handle.fired()
    assert handle.get_context() is None
