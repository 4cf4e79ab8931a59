"""Subclasses that do not call `super().__init__()`: the error names the missing call."""

import asyncio
from typing import Any

import pytest

import aiowheel


class ForgetfulDetector(aiowheel.IdleDetector[str]):
    """An idle detector without a timeout."""

    def __init__(self) -> None:
        pass


class ForgetfulOperation(aiowheel.DelayedOperation[None]):
    """An operation without a state."""

    def __init__(self) -> None:
        pass


class ForgetfulLoop(aiowheel.WheelEventLoopMixin, asyncio.SelectorEventLoop):
    """A loop without a wheel."""

    def __init__(self) -> None:
        asyncio.SelectorEventLoop.__init__(self)


def test_an_idle_detector() -> None:
    """The first use raises the error."""
    with pytest.raises(RuntimeError, match=r"^ForgetfulDetector.__init__ must call super\(\)"):
        ForgetfulDetector().touch("k")


def test_an_operation() -> None:
    """Watching the operation raises the error."""
    purgatory = aiowheel.Purgatory(timer=aiowheel.ManualTimer())
    with pytest.raises(TypeError, match=r"^operation must call super\(\).__init__\(timeout\)"):
        purgatory.try_complete_else_watch(ForgetfulOperation(), ["k"])
    assert len(purgatory) == 0


def test_a_loop() -> None:
    """The first timer and the run raise the error."""
    loop = ForgetfulLoop()
    try:
        for use in (lambda: loop.call_later(1, print), loop.run_forever):
            with pytest.raises(RuntimeError, match=r"^ForgetfulLoop.__init__ must call super\(\)"):
                use()
    finally:
        asyncio.SelectorEventLoop.close.__get__(loop)()


@pytest.mark.skipif(aiowheel.accelerated, reason="a compiled class has no interpreted subclass")
@pytest.mark.parametrize("call", ["open", "call_later", "sleep", "statistics"])
def test_a_timer(call: str) -> None:
    """Every use raises the error."""

    class Forgetful(aiowheel.Timer):
        def __init__(self) -> None:
            pass

    timer: Any = Forgetful()
    arguments = {"call_later": (1, print), "sleep": (1,)}.get(call, ())
    with pytest.raises(RuntimeError, match=r"^Forgetful.__init__ must call super\(\).__init__"):
        if call == "open":
            asyncio.run(timer.__aenter__())
        else:
            getattr(timer, call)(*arguments)
