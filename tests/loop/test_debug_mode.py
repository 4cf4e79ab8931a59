"""Debug mode of a wheel loop: what asyncio checks and logs, ours checks and logs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from aiowheel.loop import WheelSelectorEventLoop, new_event_loop

HERE = re.escape(Path(__file__).name)


@pytest.fixture
def debug_loop(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """A loop in debug mode, on each base."""
    loop.set_debug(True)
    return loop


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop run what is due, and what that makes ready."""
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))


def nothing(*args: object) -> None:
    """Do nothing."""


def fail(*args: object) -> None:
    """Fail."""
    raise ZeroDivisionError


def slow_messages(loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged of timers while two run, the first armed before debug mode was on."""
    loop.slow_callback_duration = 0
    loop.set_debug(False)
    loop.call_later(0, nothing, "armed before")
    loop.set_debug(True)
    loop.call_later(0, nothing, "armed in debug mode")
    with caplog.at_level(logging.WARNING, "asyncio"):
        turn(loop)
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if "Executing <TimerHandle" in text and "nothing" in text]


def test_slow_callbacks_are_named_as_asyncio_names_them(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback, where it stands, where its timer was armed, and how long it took."""
    before, within = slow_messages(loop, caplog)

    assert re.fullmatch(
        rf"Executing <TimerHandle when=\d+\.?\d* nothing\('?.*\) at .*{HERE}:\d+> "
        r"took \d+\.\d\d\d seconds",
        before,
    )
    assert re.fullmatch(
        rf"Executing <TimerHandle when=\d+\.?\d* nothing\('?.*\) at .*{HERE}:\d+ "
        rf"created at .*{HERE}:\d+> took \d+\.\d\d\d seconds",
        within,
    )


def test_on_asyncio_the_messages_are_asyncios_own(caplog: pytest.LogCaptureFixture) -> None:
    """Digits apart they are equal, and the machinery of the wheel is not named beside them."""
    texts: list[list[str]] = []
    for make in (asyncio.SelectorEventLoop, WheelSelectorEventLoop):
        loop = make()
        caplog.clear()
        texts.append([re.sub(r"\d+\.?\d*", "#", text) for text in slow_messages(loop, caplog)])
        loop.close()

    asyncios, ours = texts
    assert len(asyncios) == 2
    assert ours[1] == asyncios[1]
    assert ours[0] == asyncios[0]


@pytest.mark.parametrize("method", ["call_later", "call_at"])
def test_the_traceback_ends_where_the_timer_was_armed(
    debug_loop: asyncio.AbstractEventLoop, method: str
) -> None:
    """Whatever our own frames are: the caller's is the last."""
    loop = debug_loop
    call: Callable[..., asyncio.TimerHandle] = getattr(loop, method)

    handle = call(loop.time() + 60, nothing)

    traceback = vars(type(handle))["_source_traceback"].__get__(handle)
    assert traceback[-1].name == "test_the_traceback_ends_where_the_timer_was_armed"
    assert re.search(rf"created at .*{HERE}:{traceback[-1].lineno}>", repr(handle))


def test_a_cancelled_handle_still_names_its_callback(debug_loop: asyncio.AbstractEventLoop) -> None:
    """And where it was armed, though it holds neither any more."""
    handle = debug_loop.call_later(60, nothing)

    handle.cancel()

    assert re.fullmatch(
        rf"<TimerHandle cancelled when=\S+ nothing\(\) at .*{HERE}:\d+ created at .*{HERE}:\d+>",
        repr(handle),
    )


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("debug", [False, True])
def test_what_a_callback_raises_reaches_the_exception_handler(
    loop: asyncio.AbstractEventLoop,
    error: type[BaseException],
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """With asyncio's words and keys; the next callback runs all the same."""
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("debug", [False, True])
def test_interrupts_leave_the_loop_and_timers_survive_them(
    loop: asyncio.AbstractEventLoop,
    error: type[BaseException],
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """As on asyncio: `run_forever` raises, and when it is called again the rest runs."""
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
    """While the loop runs; one that does not run takes timers from anywhere, as asyncio's does."""
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


def test_coroutines_and_what_cannot_be_called_are_refused(
    debug_loop: asyncio.AbstractEventLoop,
) -> None:
    """With asyncio's words."""

    async def coroutine() -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_later\(\)"):
        debug_loop.call_later(1, coroutine)
    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_at\(\)"):
        debug_loop.call_at(1, coroutine)
    with pytest.raises(TypeError, match=r"a callable object was expected by call_later\(\)"):
        debug_loop.call_later(1, "no")  # type: ignore[arg-type]


def test_debug_mode_is_on_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYTHONASYNCIODEBUG` is read by the base loop when it is made."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    loop = new_event_loop(uvloop=False)

    assert loop.get_debug()
    assert "created at" in repr(loop.call_later(60, nothing))
    loop.close()
