"""The pytest plugin: the fixtures `manual_timer` and `virtual_clock`, the mark `virtual_time`.

Rank 4. pytest loads it in every project that has this package installed, so it leaves the loops of
unmarked tests alone: pytest-asyncio, which it never imports, asks it from the first marked test on,
and gets an answer for marked tests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache, partial
from inspect import iscoroutinefunction

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
        loops = _virtual_loops(metafunc.definition, mark)
        backends = [("asyncio", {"loop_factory": factory}) for factory in loops.values()]
        # The scope of anyio's own fixture: those of a module may ask for it.
        metafunc.parametrize("anyio_backend", backends, ids=list(loops), scope="module")
    plugins = metafunc.config.pluginmanager
    if not plugins.has_plugin("asyncio"):
        return
    if not plugins.has_plugin(_CHOOSER):
        plugins.register(_LoopChooser(), _CHOOSER)
    if not metafunc.config.hook.pytest_asyncio_loop_factories.has_spec():
        _refuse_real_time(metafunc)


def _refuse_real_time(metafunc: pytest.Metafunc) -> None:
    """Nobody asks for loops: what is meant to take no time would take all of it."""
    if iscoroutinefunction(metafunc.function) and "anyio_backend" not in metafunc.fixturenames:
        text = f"{metafunc.definition.nodeid}: mark {MARK} needs pytest-asyncio 1.4 or later"
        pytest.fail(text, pytrace=False)


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
            return _virtual_loops(item, mark)
        # Where nobody else answers, what pytest-asyncio does without the hook: ask the policy.
        return {"asyncio": asyncio.new_event_loop} if others is None else others


def _refuse_other_loops(item: pytest.Item) -> None:
    mark = item.get_closest_marker("asyncio")
    if mark is not None and mark.kwargs.get("loop_factories"):
        raise pytest.UsageError(
            f"{item.nodeid}: mark {MARK} chooses the loop, so drop loop_factories="
            f"{mark.kwargs['loop_factories']!r}; other loops, uvloop above all, cannot be virtual"
        )


def _virtual_loops(item: pytest.Item, mark: pytest.Mark) -> dict[str, LoopFactory]:
    try:
        return virtual_time(*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        text = f"{item.nodeid}: mark {MARK}: {error}"
        raise pytest.fail.Exception(text, pytrace=False) from None


def virtual_time(
    autojump: bool = True,  # noqa: FBT001, FBT002 - the mark's arguments, which may go by position
    patience: float = 0.1,
    seed: int | Iterable[int] | None = None,
    start: float = 0.0,
) -> dict[str, LoopFactory]:
    """What the mark asks for: loops, by the name that shows in the test's id."""
    if not isinstance(seed, Iterable):
        return {"virtual": _factory(autojump, patience, seed, start)}
    loops = {f"seed={each}": _factory(autojump, patience, each, start) for each in seed}
    if not loops:
        raise ValueError("seed must be one seed or several, got none")
    return loops


@cache
def _factory(
    autojump: bool,  # noqa: FBT001 - as above
    patience: float,
    seed: int | None,
    start: float,
) -> LoopFactory:
    """One and the same for equal options: by that, pytest knows that tests may share a loop."""
    make = partial(
        VirtualClockEventLoop, autojump=autojump, patience=patience, seed=seed, start=start
    )
    make().close()  # bad options are refused while the test's name is known
    return make
