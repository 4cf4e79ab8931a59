"""Debug mode of a wheel loop: it checks and logs what asyncio checks and logs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from aiowheel.loop import WheelSelectorEventLoop, new_event_loop

HERE = re.escape(Path(__file__).name)


@pytest.fixture
def debug_loop(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """A loop in debug mode, on each base."""
    loop.set_debug(True)
    return loop


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop run due timers and the callbacks that they schedule."""
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))


def nothing(*args: object) -> None:
    """Do nothing."""


def fail(*args: object) -> None:
    """Raise ZeroDivisionError."""
    raise ZeroDivisionError


class SlowClock:
    """A clock for the loops under test, which only a slow callback advances."""

    def __init__(self) -> None:
        self.now = 5.0

    def time(self, *_: object) -> float:
        """Return the seconds."""
        return self.now

    def take_long(self, _: object) -> None:
        """Let a quarter of a second pass."""
        self.now += 0.25


def slow_messages(
    loop: asyncio.AbstractEventLoop, callback: Callable[[object], None], logged: list[str]
) -> list[str]:
    """Return the log lines about two slow timers, the first armed before debug mode was on."""
    logged.clear()
    loop.call_later(0, callback, "armed before")
    loop.set_debug(True)
    loop.call_later(0, callback, "armed in debug mode")
    turn(loop)
    return [text for text in logged if "Executing <TimerHandle" in text]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings that asyncio's logger receives."""
    texts: list[str] = []

    def warn(text: str, *args: object) -> None:
        texts.append(text % args)

    monkeypatch.setattr(logging.getLogger("asyncio"), "warning", warn)
    return texts


def test_on_asyncio_slow_callbacks_are_named_by_asyncio_itself(logged: list[str]) -> None:
    """The text equals asyncio's except for line numbers, and shows nothing of the wheel."""
    clock = SlowClock()
    texts: list[list[str]] = []
    for kind in (asyncio.SelectorEventLoop, WheelSelectorEventLoop):
        loop: Any = type("Loop", (kind,), {"time": clock.time})()
        texts.append(slow_messages(loop, clock.take_long, logged))
        loop.close()

    asyncios, ours = ([re.sub(r"when=[\d.]+", "", text) for text in each] for each in texts)
    assert len(asyncios) == 2
    assert ours == asyncios


def test_on_uvloop_slow_callbacks_are_named_as_on_asyncio(logged: list[str]) -> None:
    """The text shows the callback, its place and where its timer was armed, but not the wheel."""
    pytest.importorskip("uvloop")
    loop = new_event_loop(uvloop=True)
    loop.slow_callback_duration = 0  # every callback counts as slow

    before, within = slow_messages(loop, nothing, logged)
    loop.close()

    start = r"Executing <TimerHandle when=[\d.]+ nothing\("
    end = r"took \d+\.\d\d\d seconds"
    assert re.fullmatch(rf"{start}.*\) at .*{HERE}:\d+> {end}", before)
    assert re.fullmatch(rf"{start}.*\) at .*{HERE}:\d+ created at .*{HERE}:\d+> {end}", within)


@pytest.mark.parametrize("method", ["call_later", "call_at"])
def test_the_traceback_ends_where_the_timer_was_armed(
    debug_loop: asyncio.AbstractEventLoop, method: str
) -> None:
    """The caller's frame is the last, and no frame of this package follows."""
    loop = debug_loop
    call: Callable[..., asyncio.TimerHandle] = getattr(loop, method)

    handle = call(loop.time() + 60, nothing)

    traceback = vars(type(handle))["_source_traceback"].__get__(handle)
    assert traceback[-1].name == "test_the_traceback_ends_where_the_timer_was_armed"
    assert re.search(rf"created at .*{HERE}:{traceback[-1].lineno}>", repr(handle))


def test_a_cancelled_handle_still_names_its_callback(debug_loop: asyncio.AbstractEventLoop) -> None:
    """The text also shows where it was armed, although the handle holds neither any more."""
    handle = debug_loop.call_later(60, nothing)

    handle.cancel()

    assert re.fullmatch(
        rf"<TimerHandle cancelled when=\S+ nothing\(\) at .*{HERE}:\d+ created at .*{HERE}:\d+>",
        repr(handle),
    )


def test_a_handle_that_has_run_is_fired(debug_loop: asyncio.AbstractEventLoop) -> None:
    """On asyncio's loop, a callback that is due and has not run can still be cancelled."""
    handles: list[Any] = []
    fired: list[bool] = []

    def note() -> None:
        fired.append(handles[0].fired())
        if handles[1].cancel():
            fired.append(handles[1].fired())

    handles = [debug_loop.call_later(0, note), debug_loop.call_later(0, fired.append, True)]
    assert not handles[0].fired()
    turn(debug_loop)

    assert fired == [True, False]
    assert [handle.fired() for handle in handles] == [True, False]
    assert [handle.cancelled() for handle in handles] == [False, True]


class Unprintable:
    """A callback whose `repr` raises."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        """Count the call."""
        self.calls += 1

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_a_callback_that_cannot_be_printed_can_be_cancelled(
    debug_loop: asyncio.AbstractEventLoop,
) -> None:
    """This holds before the deadline, and on asyncio's loop until the callback runs."""
    callback = Unprintable()
    handles: list[Any] = [debug_loop.call_later(60, callback)]
    answers = [handles[0].cancel()]

    debug_loop.call_later(0, lambda: answers.append(handles[1].cancel()))
    handles.append(debug_loop.call_later(0, callback))
    turn(debug_loop)

    assert answers == [True, True]
    assert [handle.cancelled() for handle in handles] == [True, True]
    assert callback.calls == 0
    for handle in handles:
        assert re.fullmatch(r"<TimerHandle cancelled when=\S+>", repr(handle))


class Point(NamedTuple):
    """A tuple with a method."""

    left: int
    right: int

    def note(self) -> None:
        """Do nothing; a timer calls this method."""
        NOTED.append(self)


NOTED: list[object] = []


def test_a_method_of_a_named_tuple_is_called_with_it(debug_loop: asyncio.AbstractEventLoop) -> None:
    """Its items are neither passed as arguments nor shown as such."""
    NOTED.clear()
    handle = debug_loop.call_later(0, Point(1, 2).note)

    assert re.search(r"Point\.note\(\) ", repr(handle))
    turn(debug_loop)

    assert NOTED == [(1, 2)]


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("debug", [False, True])
def test_an_error_of_a_callback_reaches_the_exception_handler(
    loop: asyncio.AbstractEventLoop,
    error: type[BaseException],
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """The report has asyncio's text and keys; the next callback runs."""
    contexts: list[dict[str, object]] = []
    ran: list[str] = []

    def throw(_: str) -> None:
        raise error

    loop.set_exception_handler(lambda _, context: contexts.append(context))
    loop.set_debug(debug)
    handle = loop.call_later(0, throw, "x")
    loop.call_later(0, ran.append, "next")

    turn(loop)

    (context,) = contexts
    assert re.fullmatch(
        rf"Exception in callback .*throw\(.*\) at .*{HERE}:\d+", str(context["message"])
    )
    assert isinstance(context["exception"], error)
    assert isinstance(context["handle"], asyncio.TimerHandle)
    assert context["handle"] is handle or (debug and isinstance(loop, WheelSelectorEventLoop))
    assert ("source_traceback" in context) == debug
    assert ran == ["next"]


class Nameless:
    """A callable without a name, whose `repr` raises."""

    def __call__(self) -> None:
        """Raise another error."""
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise RuntimeError


# Not on asyncio's loop in debug mode: there asyncio's own code runs and reports the callback.
@pytest.mark.parametrize(("on_uvloop", "debug"), [(False, False), (True, False), (True, True)])
def test_a_callback_without_a_name_runs_and_its_error_is_reported(
    on_uvloop: bool,  # noqa: FBT001 - the parameters of the test
    debug: bool,  # noqa: FBT001
) -> None:
    """The callback runs and its error is reported, although its name cannot be shown."""
    if on_uvloop:
        pytest.importorskip("uvloop")
    loop = new_event_loop(uvloop=on_uvloop)
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    loop.set_debug(debug)
    loop.call_later(0, Nameless())

    turn(loop)
    loop.close()

    (context,) = contexts
    assert isinstance(context["exception"], ZeroDivisionError)
    assert ".Nameless object at " in str(context["message"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("debug", [False, True])
def test_interrupts_leave_the_loop_and_timers_survive_them(
    loop: asyncio.AbstractEventLoop,
    error: type[BaseException],
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """As in asyncio, `run_forever` raises, and the rest runs when it is called again."""
    ran: list[str] = []

    def interrupt() -> None:
        raise error

    loop.set_debug(debug)
    loop.call_later(0, interrupt)
    loop.call_later(0, ran.append, "rest")

    with pytest.raises(error):
        loop.run_forever()
    turn(loop)

    assert ran == ["rest"]


def test_other_threads_are_refused(debug_loop: asyncio.AbstractEventLoop) -> None:
    """This holds while the loop runs; a stopped loop accepts timers from any thread."""
    loop = debug_loop
    errors: list[BaseException] = []

    def arm() -> None:
        for call in (loop.call_later, loop.call_at):
            try:
                call(60, nothing)
            except RuntimeError as error:
                errors.append(error)

    async def main() -> None:
        await asyncio.to_thread(arm)

    loop.run_until_complete(main())
    assert len(errors) == 2
    assert all("Non-thread-safe operation" in str(error) for error in errors)

    thread = Thread(target=arm)
    thread.start()
    thread.join()
    assert len(errors) == 2


def test_coroutines_and_objects_that_cannot_be_called_are_refused(
    debug_loop: asyncio.AbstractEventLoop,
) -> None:
    """The errors have asyncio's texts."""

    async def coroutine() -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_later\(\)"):
        debug_loop.call_later(1, coroutine)
    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_at\(\)"):
        debug_loop.call_at(1, coroutine)
    with pytest.raises(TypeError, match=r"a callable object was expected by call_later\(\)"):
        debug_loop.call_later(1, "no")  # type: ignore[arg-type]


def test_debug_mode_is_on_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base loop reads `PYTHONASYNCIODEBUG` when it is created."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    loop = new_event_loop(uvloop=False)

    assert loop.get_debug()
    assert "created at" in repr(loop.call_later(60, nothing))
    loop.close()


@pytest.mark.parametrize(("enabled", "debug"), [(0, False), (1, True), (None, False), ("", False)])
def test_any_truth_value_sets_the_mode(
    loop: asyncio.AbstractEventLoop, enabled: object, *, debug: bool
) -> None:
    """As on asyncio's loops, any true or false value is legal; timers continue to fire."""
    ran: list[int] = []
    for before in (False, True):
        loop.set_debug(before)
        loop.call_later(0, ran.append, 1)
        loop.set_debug(enabled)  # type: ignore[arg-type]
        assert bool(loop.get_debug()) == debug
        handle = loop.call_later(60, nothing)
        assert ("created at" in repr(handle)) == debug
        handle.cancel()
        turn(loop)

    assert ran == [1, 1]


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_runner_that_is_given_a_number(*, uvloop: bool) -> None:
    """`Runner(debug=1)` passes the 1 to `set_debug`."""
    if uvloop:
        pytest.importorskip("uvloop")

    async def main() -> bool:
        await asyncio.sleep(0)
        return bool(asyncio.get_running_loop().get_debug())

    def factory() -> asyncio.AbstractEventLoop:
        return new_event_loop(uvloop=uvloop)

    for debug in (0, 1):
        with asyncio.Runner(debug=debug, loop_factory=factory) as runner:  # type: ignore[arg-type]
            assert runner.run(main()) == bool(debug)


def test_a_coroutine_object_is_refused(debug_loop: asyncio.AbstractEventLoop) -> None:
    """As on asyncio's loop; it would never be awaited."""

    async def coroutine() -> None: ...

    made = coroutine()
    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_later\(\)"):
        debug_loop.call_later(1, made)  # type: ignore[arg-type]
    made.close()
