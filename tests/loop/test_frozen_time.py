"""Libraries that freeze time replace functions of the `time` module in every loaded module."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

import aiowheel


def freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clocks of `time` by clocks that stand still in every module, as freezegun does.

    As freezegun with `real_asyncio=True`, it leaves asyncio's own loops unchanged.
    """
    frozen: dict[object, Callable[[], Any]] = {
        time.monotonic: lambda: 1.0,
        time.monotonic_ns: lambda: 1_000_000_000,
        time.time: lambda: 1.0,
        time.perf_counter: lambda: 1.0,
    }
    for name, module in list(sys.modules.items()):
        if name != "time" and not name.startswith("aiowheel"):
            continue
        for attribute, value in list(vars(module).items()):
            if callable(value) and type(value).__hash__ is not None:
                fake = frozen.get(value)
                if fake is not None:
                    monkeypatch.setattr(module, attribute, fake)


@pytest.mark.realtime
def test_a_wheel_loop_wakes_up(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sleeps, timeouts, a separate timer and the shared timer end; the loop's clock advances."""
    ended: list[str] = []

    async def main() -> None:
        before = loop.time()
        await asyncio.sleep(0.002)
        ended.append("sleep")
        async with aiowheel.Timer() as timer:
            await timer.sleep(0.002)
            ended.append("timer")
        async with aiowheel.move_on_after(0.002):
            await asyncio.Event().wait()
        ended.append("shared")
        assert loop.time() >= before + 0.006

    freeze(monkeypatch)
    assert time.monotonic() == time.monotonic()
    assert cast(Any, time).monotonic_ns() == 1_000_000_000
    loop.run_until_complete(asyncio.wait_for(main(), 60))

    assert ended == ["sleep", "timer", "shared"]


@pytest.mark.realtime
def test_a_wheel_loop_under_freezegun(loop: asyncio.AbstractEventLoop) -> None:
    """The library itself, if it is installed, without `real_asyncio`, as most tests use it."""
    freezegun = pytest.importorskip("freezegun")
    ended: list[float] = []

    async def main() -> None:
        await asyncio.sleep(0.002)
        async with aiowheel.Timer() as timer:
            await timer.sleep(0.002)
        ended.append(time.time())

    with freezegun.freeze_time("2012-01-14"):
        loop.run_until_complete(main())

    assert ended == [1326499200.0]
