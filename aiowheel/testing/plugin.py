"""The pytest plugin: the fixtures `manual_timer` and `virtual_clock`, the mark `virtual_time`.

Rank 4. pytest loads it in every project that has this package installed, so it leaves the loops of
unmarked tests alone: pytest-asyncio, which it never imports, asks it from the first marked test on,
and gets an answer for marked tests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from aiowheel.testing import ManualTimer, VirtualClock, VirtualClockEventLoop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

MARK = "virtual_time"
_CHOOSER = "aiowheel-loop-chooser"


@pytest.fixture
def manual_timer() -> ManualTimer:
    """A timer without a loop; its time passes in `manual_timer.advance(seconds)`."""
    return ManualTimer()


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """The clock of the loop the test runs on, which must be marked `virtual_time`."""
    return VirtualClock()


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(autojump=True, patience=0.1, seed=None, start=0.0): run the async test on "
        "aiowheel.testing.VirtualClockEventLoop; several seeds run it once for each",
    )


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Have a marked test run on virtual loops; before pytest-asyncio asks for its loops."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is not None:
        _choose_loops(metafunc, mark)
    return (yield)


def _choose_loops(metafunc: pytest.Metafunc, mark: pytest.Mark) -> None:
    if "anyio_backend" in metafunc.fixturenames:
        loops = _virtual_loops(mark)
        backends = [("asyncio", {"loop_factory": factory}) for factory in loops.values()]
        metafunc.parametrize("anyio_backend", backends, ids=list(loops))
    plugins = metafunc.config.pluginmanager
    if plugins.has_plugin("asyncio") and not plugins.has_plugin(_CHOOSER):
        plugins.register(_LoopChooser(), _CHOOSER)


class _LoopChooser:
    """Answers pytest-asyncio's question for loops before the project's own hook does."""

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_asyncio_loop_factories(
        self, item: pytest.Item
    ) -> Generator[None, Mapping[str, LoopFactory] | None, Mapping[str, LoopFactory] | None]:
        """The loops that *item* runs on, by the name that shows in its id."""
        others = yield
        mark = item.get_closest_marker(MARK)
        if mark is not None:
            _refuse_other_loops(item)
            return _virtual_loops(mark)
        # Where nobody else answers, what pytest-asyncio does without the hook: ask the policy.
        return {"asyncio": asyncio.new_event_loop} if others is None else others


def _refuse_other_loops(item: pytest.Item) -> None:
    mark = item.get_closest_marker("asyncio")
    if mark is not None and mark.kwargs.get("loop_factories"):
        raise pytest.UsageError(
            f"{item.nodeid}: mark {MARK} chooses the loop, so drop loop_factories="
            f"{mark.kwargs['loop_factories']!r}; other loops, uvloop above all, cannot be virtual"
        )


def _virtual_loops(mark: pytest.Mark) -> dict[str, LoopFactory]:
    options: dict[str, Any] = dict(mark.kwargs)
    seed: int | Iterable[int] | None = options.pop("seed", None)
    make = partial(VirtualClockEventLoop, **options)
    if isinstance(seed, Iterable):
        return {f"seed={each}": partial(make, seed=each) for each in seed}
    return {"virtual": partial(make, seed=seed)}
