"""The handles of a wheel loop behave as asyncio's do."""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import Any, cast

import pytest

from aiowheel.loop import LoopHandle, new_event_loop


def nothing() -> None:
    """Do nothing."""


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop run due timers and the callbacks that they schedule."""
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))


def test_handles_are_accepted_as_asyncios(loop: asyncio.AbstractEventLoop) -> None:
    """`isinstance`, single dispatch and patterns accept them as asyncio's."""
    handle = loop.call_later(60, nothing)

    @functools.singledispatch
    def kind(_: object) -> str:
        return "something"

    @kind.register
    def _(_: asyncio.TimerHandle) -> str:
        return "timer"

    assert isinstance(handle, asyncio.TimerHandle)
    assert isinstance(handle, asyncio.Handle)
    assert handle.__class__ is asyncio.TimerHandle
    assert kind(handle) == "timer"
    match handle:
        case asyncio.TimerHandle():
            pass
        case _:
            pytest.fail("no pattern matched")


def test_the_documented_differences_of_the_handles(loop: asyncio.AbstractEventLoop) -> None:
    """Each line of the list in docs/reference/loop.md holds."""
    when = loop.time() + 60
    handle, same = loop.call_at(when, nothing), loop.call_at(when, nothing)

    assert type(handle).__name__ == LoopHandle.__name__
    assert not issubclass(type(handle), asyncio.TimerHandle)
    assert handle != same
    with pytest.raises(TypeError, match="weak"):
        weakref.ref(handle)
    assert not hasattr(handle, "_run")
    assert not hasattr(handle, "_scheduled")


def test_handles_are_in_the_order_of_their_times(loop: asyncio.AbstractEventLoop) -> None:
    """They compare with each other and with asyncio's handles; each equals only itself."""
    late, early = loop.call_at(3e9, nothing), loop.call_at(1e9, nothing)
    asyncios = asyncio.TimerHandle(2e9, nothing, (), loop)

    assert sorted([late, asyncios, early]) == [early, asyncios, late]
    assert max(early, late) is late
    assert early <= early <= asyncios <= late  # noqa: PLR0124 - equal times are in order
    assert late >= asyncios >= early
    assert not late <= early
    assert len({early, late, early}) == 2
    assert asyncios not in {early, late}
    with pytest.raises(TypeError):
        assert early < 2e9  # type: ignore[operator]
    with pytest.raises(TypeError):
        assert early <= 2e9  # type: ignore[operator]


def test_a_bool_is_a_number_of_seconds(loop: asyncio.AbstractEventLoop) -> None:
    """As on asyncio's loops a bool is accepted, for example by `asyncio.sleep(True)`."""
    before = loop.time()

    assert before + 1 <= loop.call_later(True, nothing).when() <= loop.time() + 1
    assert loop.call_at(True, nothing).when() == 1.0
    assert loop.run_until_complete(asyncio.wait_for(asyncio.sleep(False, "slept"), True)) == "slept"


def test_when_returns_exactly_the_given_value(loop: asyncio.AbstractEventLoop) -> None:
    """`when()` returns the same float, not one rounded to nanoseconds."""
    when = loop.time() + 1 / 3

    assert loop.call_at(when, nothing).when() == when


def test_cancel_returns_whether_it_was_in_time(loop: asyncio.AbstractEventLoop) -> None:
    """`cancelled()` is true afterwards in any case, as for asyncio's handle."""
    pending, fired = loop.call_later(60, nothing), loop.call_later(0, nothing)
    turn(loop)

    assert not fired.cancelled()
    answers = [handle.cancel() for handle in (pending, pending, fired)]  # type: ignore[func-returns-value]
    assert answers == [True, False, False]
    assert pending.cancelled()
    assert fired.cancelled()


@pytest.mark.parametrize("debug", [False, True])
def test_a_deadline_can_be_pushed_by_the_handle(
    loop: asyncio.AbstractEventLoop,
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """As any handle of this package it has `touch` for its delay, and `reschedule` for a time."""
    loop.set_debug(debug)
    fired: list[str] = []

    async def push() -> None:
        touched = cast(LoopHandle, loop.call_later(60, fired.append, "touched"))
        moved = cast(LoopHandle, loop.call_at(loop.time() + 90, fired.append, "moved"))
        before, when = loop.time(), loop.time() + 1 / 3

        assert touched.touch()
        assert before + 60 <= touched.when() <= loop.time() + 60
        assert moved.touch()
        assert before + 89 < moved.when() <= loop.time() + 90
        assert moved.reschedule(when)
        assert moved.when() == when
        assert f"when={when}" in repr(moved)
        assert moved < touched
        assert moved.touch(-1)
        assert moved.when() < before
        for _ in range(5):
            await asyncio.sleep(0)
        assert fired == ["moved"]
        assert not moved.touch()
        assert moved.when() < before
        touched.cancel()

    loop.run_until_complete(push())


def test_firing_and_cancelling_drop_callback_and_arguments(loop: asyncio.AbstractEventLoop) -> None:
    """This holds in debug mode too, while the handle is kept."""

    class Thing:
        def act(self) -> None:
            """Do nothing."""

    for debug in (False, True):
        loop.set_debug(debug)
        things = [Thing() for _ in range(4)]
        gone = [weakref.ref(thing) for thing in things]
        handles = [
            loop.call_later(0, things[0].act),
            loop.call_later(60, things[1].act),
            loop.call_later(0, Thing.act, things[2]),
            loop.call_later(60, Thing.act, things[3]),
        ]
        del things
        handles[1].cancel()
        handles[3].cancel()
        turn(loop)
        assert [thing() for thing in gone] == [None] * 4


@pytest.mark.parametrize("debug", [False, True])
def test_repr_equals_asyncios(debug: bool) -> None:  # noqa: FBT001 - the parameter of the test
    """The text has the time, the callback, its place, and in debug mode the place of arming.

    The test compares it with that of asyncio's own loop on the same line.
    """
    texts: list[list[str]] = []
    from aiowheel.loop import WheelSelectorEventLoop

    for make in (asyncio.SelectorEventLoop, WheelSelectorEventLoop):
        loop = make()
        loop.set_debug(debug)
        pending, cancelled = (
            loop.call_at(when, functools.partial(print, "a"), "b") for when in (2e9, 3e9)
        )
        plain = loop.call_at(2e9, nothing)
        method = loop.call_at(2e9, loop.get_debug)
        cancelled.cancel()
        texts.append([repr(each) for each in (pending, cancelled, plain, method)])
        loop.close()

    asyncios, ours = texts
    assert ours[:3] == asyncios[:3]
    assert "get_debug" in ours[3]
    assert ("created at" in ours[0]) == debug


def test_a_callback_that_cancels_its_own_handle(loop: asyncio.AbstractEventLoop) -> None:
    """The callback runs once, and nothing else happens."""
    ran: list[bool] = []

    def act() -> None:
        ran.append(bool(handle.cancel()))  # type: ignore[func-returns-value]

    for debug in (False, True):
        loop.set_debug(debug)
        handle = loop.call_later(0, act)
        turn(loop)

    assert ran == [False, False]


@pytest.mark.parametrize("debug", [False, True])
def test_a_due_callback_can_be_cancelled_by_one_due_before_it(
    loop: asyncio.AbstractEventLoop,
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """This holds in debug mode too, where asyncio's loop has received both already."""
    answers: list[object] = []
    ran: list[str] = []
    loop.set_debug(debug)

    def first() -> None:
        answers.append(second.cancel())  # type: ignore[func-returns-value]

    loop.call_later(0, first)
    second = loop.call_later(0, ran.append, "cancelled")

    turn(loop)

    assert answers == [True]
    assert second.cancelled()
    assert ran == []
    assert ("append" in repr(second)) is debug  # the handle still shows the callback there


@pytest.mark.parametrize("debug", [False, True])
def test_the_text_of_a_due_callback_that_has_not_run(
    loop: asyncio.AbstractEventLoop,
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """A callback that is due before it sees the same text as while the handle was pending."""
    loop.set_debug(debug)
    texts: list[str] = []

    def first() -> None:
        texts.append(repr(second))

    loop.call_later(0, first)
    second = loop.call_later(0, nothing)
    before = repr(second)

    turn(loop)

    assert texts == [before]
    assert "nothing" in before


@pytest.mark.parametrize("debug", [False, True])
def test_asyncios_private_names(
    loop: asyncio.AbstractEventLoop,
    debug: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """`_callback` and `_cancelled` have the values that they have on asyncio's handle."""
    loop.set_debug(debug)
    handle: Any = loop.call_later(60, nothing)
    assert (handle._callback, handle._cancelled) == (nothing, False)

    handle.cancel()

    assert (handle._callback, handle._cancelled) == (None, True)


@pytest.mark.parametrize("when", [12, 12.0, 12.3456789012345678, True, -1])
def test_when_has_the_type_that_was_given(loop: asyncio.AbstractEventLoop, when: float) -> None:
    """As asyncio's handle it returns the same object."""
    handle = loop.call_at(when, nothing)

    assert handle.when() is when
    assert type(handle.when()) is type(when)


@pytest.mark.parametrize("debug", [False, True])
def test_a_coroutine_function_is_refused_as_asyncio_refuses_it(debug: bool) -> None:  # noqa: FBT001
    """It raises only in debug mode: programs for asyncio's loops must run unchanged."""
    loop = new_event_loop(uvloop=False)
    loop.set_debug(debug)

    async def work() -> None:
        pass

    try:
        if debug:
            with pytest.raises(TypeError, match="coroutines cannot be used with call_later"):
                loop.call_later(1, work)
        else:
            handle: object = loop.call_later(1, work)
            assert cast(LoopHandle, handle).cancel()
    finally:
        loop.close()
