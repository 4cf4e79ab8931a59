"""What every test shares: which build runs, and on which event loops.

`pytestmark = pytest.mark.both_loops` runs a module's async tests on asyncio and on uvloop (ids
`[asyncio]` and `[uvloop]`); without the mark a test runs on asyncio alone.

Every firing of every test is watched: none may be early, and on a `ManualTimer` none may be late by
a tick or more. `pytest.mark.overdue` is for tests that arm deadlines already past.

Whoever waits for time to pass does so on a virtual or a manual clock, or says `realtime`, which is
for what must be seen on a real loop: on uvloop, say, which cannot be virtual. Others never sleep.

A test that needs a system says `linux` or `posix`, and is skipped elsewhere.
"""

import asyncio
import gc
import selectors
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import settings

import _aiowheel_pytestplugin as plugin
from aiowheel import _events
from aiowheel._build import build_info
from aiowheel.timer import ManualTimer

# A busy machine is no counterexample.
settings.register_profile("aiowheel", deadline=None)
settings.load_profile("aiowheel")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_configure(config: pytest.Config) -> None:
    """Use our own plugin also where the package is only on the path; let SIGINT interrupt.

    A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin, "aiowheel-from-the-path")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need another system."""
    for item in items:
        if item.get_closest_marker("linux") and sys.platform != "linux":
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
        if item.get_closest_marker("posix") and sys.platform == "win32":
            item.add_marker(pytest.mark.skip(reason="needs POSIX"))


def pytest_collection_finish() -> None:
    """Put what is there by now out of the collector's sight, for as long as the process lives.

    Ten thousand tests and what they import are a million objects, through which every full
    collection of every test would look.
    """
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Say which build is under test."""
    info = build_info()
    return f"aiowheel {info.version}: {'compiled' if info.accelerated else 'pure'} ({info.reason})"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops that *item* runs on, by the name that shows in its id."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.get_closest_marker("both_loops"):
        loops["uvloop"] = _uvloop_factory()
    return loops


def _uvloop_factory() -> LoopFactory:
    try:
        import uvloop
    except ImportError:
        return _skip_without_uvloop
    return uvloop.new_event_loop


def _skip_without_uvloop() -> asyncio.AbstractEventLoop:
    pytest.skip("uvloop is not installed")


_small_disk: list[Callable[[], None]] = []  # what ends it


@pytest.fixture
def small_disk() -> None:
    """Let no file grow beyond 8 KiB while the test runs: to its code, that is a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_no_bytecode = sys.dont_write_bytecode

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_no_bytecode

    _small_disk.append(end)
    # The files of modules that are imported meanwhile would stay, cut off.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End a small disk before pytest reports the test, for its report may go into a large file."""
    try:
        return (yield)
    finally:
        while _small_disk:
            _small_disk.pop()()


@pytest.fixture(autouse=True)
def early_firings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """Fail the test if any timer, real or manual, fired before its deadline.

    Every driver tells of such a firing in a log event, in both builds.
    """
    early: list[dict[str, object]] = []

    def emit(event: str, **fields: object) -> None:
        if event == "aiowheel.fired_early":
            early.append(fields)
        _events.emit(event, **fields)

    monkeypatch.setattr("aiowheel.timer._driver.emit", emit)
    yield early
    assert early == []


@pytest.fixture(autouse=True)
def late_firings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[ManualTimer]]:
    """Fail the test if a `ManualTimer` fired a tick or more after its deadline.

    A running loop has delays of its own; a manual timer has none to excuse it.
    """
    late: list[ManualTimer] = []
    advance = ManualTimer.advance

    def advance_and_look(timer: ManualTimer, seconds: Any) -> int:
        try:
            return advance(timer, seconds)
        finally:
            if timer.statistics().lateness.maximum_ns >= timer._tick_ns:
                late.append(timer)

    if request.node.get_closest_marker("overdue") is None:
        monkeypatch.setattr(ManualTimer, "advance", advance_and_look)
    yield late
    assert late == []


@pytest.fixture(autouse=True)
def real_sleeps(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[float]]:
    """Fail a test that is not marked `realtime` and sleeps: in its loop, or in `time.sleep`.

    A loop sleeps when its selector was given a time and nothing came. uvloop does not show it; what
    runs there runs on asyncio's loop as well. What is counted is the time asked for: a busy
    machine does not change it.
    """
    sleeps: list[float] = []
    select, sleep = selectors.DefaultSelector.select, time.sleep

    def select_and_note(
        selector: selectors.DefaultSelector, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        events = select(selector, timeout)
        if not events and timeout is not None and timeout > 0:
            sleeps.append(timeout)
        return events

    def sleep_and_note(seconds: float) -> None:
        if "/tests/" in sys._getframe(1).f_code.co_filename:  # not the standard library's polling
            sleeps.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select_and_note)
    monkeypatch.setattr(time, "sleep", sleep_and_note)
    yield sleeps
    if request.node.get_closest_marker("realtime") is None:
        # Less than a millisecond is how loops round a deadline that is all but due.
        assert sum(sleeps) < 0.001, "use virtual time, or mark the test realtime"
