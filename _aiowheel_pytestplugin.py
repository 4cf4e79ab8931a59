"""The pytest plugin: the fixtures `manual_timer` and `virtual_clock`, the mark `virtual_time`.

pytest imports this module in every project whose environment has aiowheel. It is therefore outside
the package, and imports the package only for a test that uses a fixture or the mark.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aiowheel.testing import ManualTimer, VirtualClock

MARK = "virtual_time"

# The checks of stores must show the values of a failed assert. In an editable install, pytest does
# not know that these modules belong to a plugin. It warns of modules that are imported already.
pytest.register_assert_rewrite(
    *{"aiowheel.durable.testing", "aiowheel.testing._store_checks"}.difference(sys.modules)
)


@pytest.fixture
def manual_timer() -> ManualTimer:
    """A timer without a loop, whose time passes only in `manual_timer.advance(seconds)`."""
    from aiowheel.testing import ManualTimer

    return ManualTimer()


@pytest.fixture(scope="session")  # it has no state: it finds the loop at each use
def virtual_clock() -> VirtualClock:
    """The clock of the test's loop; the test must be marked `virtual_time`."""
    from aiowheel.testing import VirtualClock

    return VirtualClock()


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(autojump=True, patience=0.1, seed=None, start=0.0): run the async test on "
        "aiowheel.testing.VirtualClockEventLoop; several seeds run it once for each",
    )


# Not `wrapper=True`, which pluggy before 1.2 does not have.
@pytest.hookimpl(hookwrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Run a marked test on virtual loops; pytest-asyncio chooses its loops after this hook."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is not None:
        from aiowheel.testing._virtual_time_mark import choose_loops

        choose_loops(metafunc, mark)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marked test whose loop cannot be chosen."""
    if item.get_closest_marker(MARK) is not None:
        from aiowheel.testing._virtual_time_mark import (
            refuse_late_mark,
            refuse_refused_mark,
            refuse_test_case,
        )

        refuse_test_case(item)
        refuse_refused_mark(item)
        refuse_late_mark(item)


@pytest.hookimpl(hookwrapper=True)  # before anyio's, which is a first one as well
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None]:
    """Make a marked coroutine function fail on any other loop, whichever plugin runs it."""
    if pyfuncitem.get_closest_marker(MARK) is not None:
        from aiowheel.testing._virtual_time_mark import require_virtual_loop

        require_virtual_loop(pyfuncitem)
    yield
