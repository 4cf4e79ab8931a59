"""Fixtures and checks that all tests share: the build under test, the event loops, the clocks.

`pytestmark = pytest.mark.both_loops` runs the async tests of a module on asyncio and on uvloop (ids
`[asyncio]` and `[uvloop]`). Without the mark a test runs on asyncio only.

Fixtures check every firing of every test: a timer must not fire early, and a `ManualTimer` must not
fire a tick or more late. `pytest.mark.overdue` is for tests that arm deadlines in the past.

A test that waits for time to pass uses a virtual or a manual clock. The `realtime` mark is for
behaviour that only a real loop shows, for example on uvloop, which cannot run on virtual time. A
test without the mark must not sleep.

A test that needs a system has the mark `linux` or `posix`; other systems skip it.
"""

import asyncio
import gc
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import _aiowheel_pytestplugin as plugin
from aiowheel import _events
from aiowheel._build import build_info
from aiowheel.timer import ManualTimer

# A slow example on a busy machine is not a failure. `make test-thorough` tries more examples, with
# --hypothesis-profile=thorough. Tests that need more than the usual number multiply that number.
settings.register_profile("thorough", deadline=None, max_examples=100)
settings.register_profile("aiowheel", deadline=None, max_examples=40)
settings.load_profile("aiowheel")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# Environment variables that change what the code under test writes to a pipe, and how wide.
TERMINAL_VARIABLES = {
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "TERMINAL_WIDTH",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}


def pytest_configure(config: pytest.Config) -> None:
    """Load the project's own plugin if it is not installed, and let SIGINT interrupt the tests.

    A shell starts background jobs with SIGINT ignored, and child processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin, "aiowheel-from-the-path")


def pytest_sessionstart() -> None:
    """Remove the user's settings for terminals and for Spark, also for child processes.

    A test of such a variable sets it. Pytest itself has read its own colors from them before.
    """
    for name in [*os.environ]:
        if name in TERMINAL_VARIABLES or name.startswith(("SPARK_", "PYSPARK_")):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need another system; `make test` looks for Spark in one folder only."""
    for item in items:
        if item.get_closest_marker("spark") and "jobs" not in item.path.parts:
            raise pytest.UsageError(f"{item.nodeid} has the mark spark and belongs in tests/jobs")
        if item.get_closest_marker("linux") and sys.platform != "linux":
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
        if item.get_closest_marker("posix") and sys.platform == "win32":
            item.add_marker(pytest.mark.skip(reason="needs POSIX"))


def pytest_collection_finish() -> None:
    """Freeze the objects that exist after collection, for the life of the process.

    Ten thousand tests and their imports are a million objects, which every full garbage collection
    in every test would otherwise traverse.
    """
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Return a line that names the build under test."""
    info = build_info()
    return f"aiowheel {info.version}: {'compiled' if info.accelerated else 'pure'} ({info.reason})"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Return the loops that *item* runs on, by the name that its id shows."""
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


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield an empty folder for Unix sockets, whose paths have at most 103 bytes on macOS.

    The path of `tmp_path` has the name of the test, and may be below a long TMPDIR.
    """
    place = "/tmp" if os.name == "posix" else None
    with tempfile.TemporaryDirectory(prefix="aiowheel-", dir=place) as name:
        yield Path(name)


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Switch the cyclic garbage collector off: the last reference frees an object."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Let the loop run until a condition holds; pytest's timeout is the limit."""

    async def turn(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - the condition sets no event
            await asyncio.sleep(0)

    return turn


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server that runs during all tests."""
    pytest.importorskip("asyncpg")
    from benchmarks._postgres import PostgresMissingError, postgres_server

    try:
        with postgres_server() as address:
            yield address
    except PostgresMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    """The address of an empty database on that server."""
    asyncpg: Any = import_module("asyncpg")  # it has no types
    name = f"test_{next(_databases)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name}")
    yield f"{postgres.rpartition('/')[0]}/{name}"
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


_databases = count()
_small_disk: list[Callable[[], None]] = []  # functions that end the small disk


@pytest.fixture
def small_disk() -> None:
    """Limit every file to 8 KiB during the test; to the code under test that is a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_no_bytecode = sys.dont_write_bytecode

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_no_bytecode

    _small_disk.append(end)
    # A module imported during the test would leave a truncated bytecode file behind.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End a small disk before pytest reports the test: the report may go into a large file."""
    try:
        return (yield)
    finally:
        while _small_disk:
            _small_disk.pop()()


@pytest.fixture(autouse=True)
def early_firings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """Fail the test if any timer, real or manual, fires before its deadline.

    Every driver reports such a firing as a log event, in both builds.
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
    """Fail the test if a `ManualTimer` fires a tick or more after its deadline.

    A running loop has delays of its own; a manual timer has no reason to be late.
    """
    late: list[ManualTimer] = []
    advance = ManualTimer.advance

    def advance_and_check(timer: ManualTimer, seconds: Any) -> int:
        try:
            return advance(timer, seconds)
        finally:
            if timer.statistics().lateness.maximum_ns >= timer._tick_ns:
                late.append(timer)

    if request.node.get_closest_marker("overdue") is None:
        monkeypatch.setattr(ManualTimer, "advance", advance_and_check)
    yield late
    assert late == []


@pytest.fixture(autouse=True)
def real_sleeps(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[float]]:
    """Fail a test without the `realtime` mark that sleeps, in its event loop or in `time.sleep`.

    A loop sleeps if its selector gets a timeout and reports no event. The check cannot see uvloop,
    but tests that run on uvloop run on asyncio as well. The fixture adds up requested times, so a
    busy machine does not change the result.
    """
    sleeps: list[float] = []
    select, sleep = selectors.DefaultSelector.select, time.sleep

    def select_and_record(
        selector: selectors.DefaultSelector, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        events = select(selector, timeout)
        if not events and timeout is not None and timeout > 0:
            sleeps.append(timeout)
        return events

    def sleep_and_record(seconds: float) -> None:
        # The standard library may poll.
        if f"{os.sep}tests{os.sep}" in sys._getframe(1).f_code.co_filename:
            sleeps.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select_and_record)
    monkeypatch.setattr(time, "sleep", sleep_and_record)
    yield sleeps
    if request.node.get_closest_marker("realtime") is None:
        # Loops round a deadline that is almost due by less than a millisecond.
        assert sum(sleeps) < 0.001, "use virtual time, or mark the test realtime"
