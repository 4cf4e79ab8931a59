"""The pytest plugin in separate projects: with pytest-asyncio, with anyio, and with neither."""

import importlib.metadata

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.one_build, pytest.mark.slow]

ASYNC_TEST = """
import asyncio
import pytest
from aiowheel.testing import VirtualClock, VirtualClockEventLoop
"""
ASYNCIO = ("-p", "asyncio", "-o", "asyncio_default_fixture_loop_scope=function")
ANYIO = ("-p", "anyio")


@pytest.fixture(autouse=True)
def own_project(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Ignore settings of parent folders, and load only the named plugins, for speed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run the project's tests in a separate process with the plugin."""
    plugin = ("-p", "_aiowheel_pytestplugin")
    return pytester.runpytest_subprocess(*plugin, "-W", "error", *options, timeout=120)


def test_the_package_declares_the_plugin() -> None:
    """A project has the plugin as soon as the package is installed."""
    declared = importlib.metadata.entry_points(group="pytest11", name="aiowheel")
    if not declared:
        pytest.skip("aiowheel is not installed, only on the path")

    assert [each.value for each in declared] == ["_aiowheel_pytestplugin"]


def test_a_marked_test_runs_on_virtual_time(pytester: pytest.Pytester) -> None:
    """In pytest-asyncio's strict mode, options reach the loop and fixtures share it."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import pytest_asyncio

@pytest_asyncio.fixture
async def started():
    return asyncio.get_running_loop()

@pytest.mark.asyncio
@pytest.mark.virtual_time(start=100)
async def test_virtual(virtual_clock: VirtualClock, started):
    await asyncio.sleep(3600)
    assert virtual_clock.time() == 3700
    assert virtual_clock.loop is started

@pytest.mark.asyncio
@pytest.mark.virtual_time(autojump=False)
async def test_by_hand(virtual_clock):
    sleeper = asyncio.create_task(asyncio.sleep(30))
    await virtual_clock.advance(29)
    assert not sleeper.done()
    await virtual_clock.advance(1)
    assert sleeper.done()

@pytest.mark.asyncio
async def test_unmarked():
    assert not isinstance(asyncio.get_running_loop(), VirtualClockEventLoop)
"""
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=3)


def test_the_loops_of_the_project_stay(pytester: pytest.Pytester) -> None:
    """The project's hook chooses the loops of unmarked tests, the plugin's those of marked ones."""
    pytester.makeconftest(
        """
import asyncio

class Own(asyncio.SelectorEventLoop):
    pass

def pytest_asyncio_loop_factories(config, item):
    return {"own": Own, "other": Own}
"""
    )
    pytester.makepyfile(
        ASYNC_TEST
        + """
pytestmark = pytest.mark.asyncio

@pytest.mark.virtual_time
async def test_virtual(virtual_clock):
    await virtual_clock.advance(3600)

async def test_unmarked():
    assert type(asyncio.get_running_loop()).__name__ == "Own"
"""
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=3)


def test_a_project_without_marks_does_not_register_the_hook(pytester: pytest.Pytester) -> None:
    """pytest-asyncio then behaves as without the plugin: no parameter and no ids."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
@pytest.mark.asyncio
async def test_unmarked(request):
    assert request.config.hook.pytest_asyncio_loop_factories.get_hookimpls() == []
    assert not hasattr(request.node, "callspec")
"""
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=1)


def test_several_seeds_are_several_tests(pytester: pytest.Pytester) -> None:
    """The test id has the seed."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
pytestmark = pytest.mark.asyncio

@pytest.mark.virtual_time(seed=range(8))
async def test_order():
    order = []
    loop = asyncio.get_running_loop()
    loop.call_later(1, order.append, "first")
    loop.call_later(1, order.append, "second")
    await asyncio.sleep(2)
    assert order == ["first", "second"]
"""
    )

    result = run(pytester, *ASYNCIO, "-rf")

    outcomes = result.parseoutcomes()
    assert outcomes["passed"] + outcomes["failed"] == 8
    assert min(outcomes["passed"], outcomes["failed"]) > 0
    result.stdout.re_match_lines([r"FAILED .*test_order\[seed=\d\]"])


MALFORMED = {
    "patiense=1": "*unexpected keyword argument 'patiense'*",
    "patience=-1": "*patience must be 0 or more seconds, got -1*",
    "seed=[]": "*seed must be an integer, None or at least one of these, got []*",
    "seed=iter([1])": "*seed must be a list or a range of seeds, got <list_iterator *",
    "True, 1, None, 0, 5": "*takes from 0 to 4 positional arguments but 5 were given*",
}


def test_a_malformed_mark_is_refused_with_the_name_of_the_test(pytester: pytest.Pytester) -> None:
    """The error has the name of the test and the bad argument, without internals."""
    tests = [
        f"""
@pytest.mark.asyncio
@pytest.mark.virtual_time({arguments})
async def test_it_{number}():
    pass
"""
        for number, arguments in enumerate(MALFORMED)
    ]
    pytester.makepyfile("".join([ASYNC_TEST, *tests, "\ndef test_other():\n    pass\n"]))

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(passed=1, errors=len(MALFORMED))
    for number, text in enumerate(MALFORMED.values()):
        result.stdout.fnmatch_lines([f"*::test_it_{number}: mark virtual_time: {text}"])


def test_a_pytest_asyncio_without_the_hook_is_refused(pytester: pytest.Pytester) -> None:
    """Without the refusal, the test would run on the real clock."""
    pytester.makeconftest(
        """
def pytest_configure(config):
    config.pluginmanager.register(object(), "asyncio")  # a version before 1.4
"""
    )
    pytester.makepyfile(
        ASYNC_TEST
        + """
@pytest.mark.virtual_time
async def test_it():
    await asyncio.sleep(3600)

def test_other():
    pass
"""
    )

    result = run(pytester)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*::test_it: mark virtual_time needs pytest-asyncio 1.4 or later"])


LEGACY = ("-p", "aiohttp.pytest_plugin")


@pytest.mark.parametrize(
    ("arguments", "outcome", "text"),
    [
        ("", "failed", "*::test_it*: mark virtual_time has no effect here: the test runs on <*"),
        ("loop", "errors", "*::test_it: mark virtual_time cannot change the loop of aiohttp.*"),
    ],
)
def test_the_legacy_plugin_of_aiohttp_is_refused(
    pytester: pytest.Pytester, arguments: str, outcome: str, text: str
) -> None:
    """The plugin runs coroutine functions on its own real loop, with or without its fixtures."""
    pytest.importorskip("aiohttp")
    pytester.makepyfile(
        ASYNC_TEST
        + f"""
@pytest.mark.virtual_time
async def test_it({arguments}):
    await asyncio.sleep(3600)

def test_other():
    pass
"""
    )

    result = run(pytester, *LEGACY, "-W", "ignore::DeprecationWarning")

    result.assert_outcomes(**{outcome: 1}, passed=1)
    result.stdout.fnmatch_lines([text])


def test_an_old_pytest_is_refused_under_anyio(pytester: pytest.Pytester) -> None:
    """Before 8.0, pytest would end the whole run with an error about a duplicate parameter."""
    pytester.makeconftest("import pytest\npytest.version_tuple = (7, 4, 4)\n")
    pytester.makepyfile(
        ASYNC_TEST
        + """
@pytest.fixture
def anyio_backend():
    return "asyncio"  # without the package trio, or with it

@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_it():
    await asyncio.sleep(3600)

def test_other():
    pass
"""
    )

    result = run(pytester, *ANYIO)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*::test_it: mark virtual_time needs pytest 8.0 or later *"])


OWN_BACKENDS = (
    '"anyio_backend", ["asyncio"]',
    '"value, anyio_backend", [(1, "asyncio")]',
    'argnames=["anyio_backend"], argvalues=[["asyncio"]]',
)


def test_a_backend_of_the_tests_own_is_refused_under_anyio(pytester: pytest.Pytester) -> None:
    """The text names the mark; that of pytest would only be about a duplicate parameter."""
    value = "\n@pytest.fixture(autouse=True)\ndef value():\n    return 0\n"
    tests = [
        f"""
@pytest.mark.anyio
@pytest.mark.virtual_time
@pytest.mark.parametrize({own})
async def test_it_{number}(request):
    await asyncio.sleep(3600)
"""
        for number, own in enumerate(OWN_BACKENDS)
    ]
    pytester.makepyfile("".join([ASYNC_TEST, value, *tests, "\ndef test_other():\n    pass\n"]))

    result = run(pytester, *ANYIO)

    result.assert_outcomes(passed=1, errors=len(OWN_BACKENDS))
    for number, _ in enumerate(OWN_BACKENDS):
        result.stdout.fnmatch_lines(
            [f"*::test_it_{number}: mark virtual_time chooses the backend, so drop parametrize*"]
        )


def test_a_test_case_of_unittest_is_refused(pytester: pytest.Pytester) -> None:
    """The test case creates a real loop; plain and unmarked test cases run."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import unittest

@pytest.mark.virtual_time
class TestMarked(unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        await asyncio.sleep(3600)

class TestUnmarked(unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        await asyncio.sleep(0)

@pytest.mark.virtual_time
class TestPlain(unittest.TestCase):
    def test_it(self):
        pass
"""
    )

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*TestMarked::test_it: mark virtual_time cannot change the loop of unittest's Isolated*"]
    )


def test_an_old_pluggy_can_load_the_plugin(pytester: pytest.Pytester) -> None:
    """Before 1.2, pluggy refuses `wrapper=True`, which would fail every run."""
    pytester.makepyfile(
        old_pluggy="""
import pluggy

call = pluggy.HookimplMarker.__call__

def call_of_1_0(self, function=None, hookwrapper=False, optionalhook=False, tryfirst=False,
                trylast=False, specname=None):
    return call(self, function, hookwrapper=hookwrapper, optionalhook=optionalhook,
                tryfirst=tryfirst, trylast=trylast, specname=specname)

pluggy.HookimplMarker.__call__ = call_of_1_0
""",
        test_it="""
import pytest

def test_unmarked():
    pass

@pytest.mark.virtual_time
def test_marked(manual_timer):
    with pytest.raises(TypeError):
        pytest.hookimpl(wrapper=True)(test_unmarked)
""",
    )
    plugins = ("-p", "old_pluggy", "-p", "_aiowheel_pytestplugin")

    pytester.runpytest_subprocess(*plugins, timeout=120).assert_outcomes(passed=2)


def test_a_project_that_does_not_use_it_never_imports_the_package(
    pytester: pytest.Pytester,
) -> None:
    """Such a run imports one small module besides those that pytest imports."""
    pytester.makepyfile(
        """
import subprocess, sys

def test_it():
    assert [name for name in sys.modules if name.startswith("aiowheel")] == []
    program = "import pytest, sys; before = {*sys.modules}; import _aiowheel_pytestplugin;"
    program += "print(*({*sys.modules} - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert loaded.stdout.split() == ["_aiowheel_pytestplugin"]
"""
    )

    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize("no_extensions", ["0", "1"])
def test_the_checks_of_a_store_show_the_values_of_a_failed_assert(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, no_extensions: str
) -> None:
    """The same holds in both builds; as in an editable install, pytest knows only the plugin."""
    monkeypatch.setenv("AIOWHEEL_NO_EXTENSIONS", no_extensions)
    monkeypatch.delenv("AIOWHEEL_REQUIRE_EXTENSIONS", raising=False)
    pytester.makepyfile(
        """
import asyncio
from aiowheel.durable import MemoryStore
from aiowheel.durable.testing import StoreContract
from aiowheel.testing import MemoryCounters, counter_store_checks

class Counters(MemoryCounters):
    async def read(self, keys):
        epoch, values = await super().read(keys)
        return epoch, {key: value + 11 for key, value in values.items()}

class Timers(MemoryStore):
    async def get(self, name):
        return None

class Contract(StoreContract):
    async def make_store(self):
        return Timers()

def test_counters():
    (check,) = [each for each in counter_store_checks() if each.__name__ == "a_write_is_a_maximum"]
    asyncio.run(check(Counters))

def test_timers():
    asyncio.run(Contract().test_a_written_timer_is_read_back())
"""
    )

    result = run(pytester, "-W", "ignore:aiowheel runs:RuntimeWarning")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["E *assert * == *", "E *assert * == *"])


def test_a_module_that_is_imported_before_the_plugin_gives_no_warning(
    pytester: pytest.Pytester,
) -> None:
    """A plugin of the project may import it."""
    pytester.makepyfile(own_plugin="import aiowheel.testing")
    pytester.makepyfile("def test_it():\n    pass\n")
    pytester.syspathinsert()
    plugins = ("-p", "own_plugin", "-p", "_aiowheel_pytestplugin")

    result = pytester.runpytest_subprocess(*plugins, "-W", "error", timeout=120)

    result.assert_outcomes(passed=1)


def test_the_marks_arguments_may_go_by_position(pytester: pytest.Pytester) -> None:
    """The order is that of `pytest --markers`, and each argument reaches the loop."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
@pytest.mark.asyncio
@pytest.mark.virtual_time(False, 0.5, 7, 100)
async def test_it(virtual_clock):
    assert (virtual_clock.autojump, virtual_clock.loop.patience) == (False, 0.5)
    assert virtual_clock.time() == 100
"""
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=1)


SHARED_LOOP = """
    yield asyncio.get_running_loop()

@pytest.mark.parametrize("ended", [100, 200])
async def test_it(shared, virtual_clock, ended):
    assert virtual_clock.loop is shared
    await asyncio.sleep(100)
    assert virtual_clock.time() == ended
"""


def test_tests_of_one_scope_share_the_loop_under_asyncio(pytester: pytest.Pytester) -> None:
    """The fixtures of that scope are created once on the shared loop."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import pytest_asyncio
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.virtual_time]

@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared():
"""
        + SHARED_LOOP
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=2)


def test_tests_of_one_scope_share_the_loop_under_anyio(pytester: pytest.Pytester) -> None:
    """With anyio, the fixture keeps the loop open."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

@pytest.fixture(scope="module")
async def shared():
"""
        + SHARED_LOOP
    )

    run(pytester, *ANYIO).assert_outcomes(passed=2)


def test_another_loop_beside_the_mark_is_refused(pytester: pytest.Pytester) -> None:
    """A test with the mark and a uvloop factory fails with the reason."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.virtual_time
async def test_virtual():
    pass

def test_other():
    pass
"""
    )

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*uvloop above all, cannot be virtual*"])


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        ("asyncio.new_event_loop", "*NotVirtualError: *runs on the real clock; run the test on*"),
        ("uvloop.new_event_loop", "*NotVirtualError: *cannot be virtual: uvloop reads the time*"),
    ],
)
def test_a_real_loop_has_no_virtual_clock(
    pytester: pytest.Pytester, factory: str, text: str
) -> None:
    """The error has the loop and the mark to use."""
    module = factory.partition(".")[0]
    pytest.importorskip(module)
    pytester.makepyfile(
        ASYNC_TEST
        + f"""
import {module}

def test_it(virtual_clock):
    async def use():
        await virtual_clock.advance(1)

    with asyncio.Runner(loop_factory={factory}) as runner:
        runner.run(use())
"""
    )

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([text])
    result.stdout.fnmatch_lines(["*@pytest.mark.virtual_time*"])


def test_the_virtual_clock_serves_hypothesis_and_wider_fixtures(pytester: pytest.Pytester) -> None:
    """The fixture has no state, so that each example of a test and each scope may share it."""
    pytester.makepyfile(
        """
import pytest
from hypothesis import given, strategies

@pytest.fixture(scope="module")
def clock(virtual_clock):
    return virtual_clock

@pytest.mark.asyncio
@pytest.mark.virtual_time
@given(seconds=strategies.integers(1, 1000))
async def test_it(clock, virtual_clock, seconds):
    before = clock.time()
    await virtual_clock.advance(seconds)
    assert clock.time() == before + seconds
"""
    )

    run(pytester, *ASYNCIO).assert_outcomes(passed=1)


@pytest.mark.parametrize(("plugin", "mark"), [(ASYNCIO, "asyncio"), (ANYIO, "anyio")])
def test_a_mark_that_comes_too_late(
    plugin: tuple[str, ...], mark: str, pytester: pytest.Pytester
) -> None:
    """The test fails instead of running on the real clock, with what to do."""
    pytester.makeconftest(
        """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if "added" in item.name:
            item.add_marker(pytest.mark.virtual_time)
"""
    )
    pytester.makepyfile(
        f"""
import asyncio
import pytest

pytestmark = pytest.mark.{mark}

@pytest.fixture
def anyio_backend():
    return "asyncio"

class TestIt:
    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.virtual_time)])
    async def test_param(self, n):
        assert n == 1

async def test_added():
    raise AssertionError

@pytest.mark.virtual_time
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.virtual_time)])
async def test_marked_twice(n):
    assert n == 1
    await asyncio.sleep(3600)
"""
    )

    result = run(pytester, *plugin)

    assert result.parseoutcomes()["passed"] == 2
    assert sum(result.parseoutcomes().get(each, 0) for each in ("failed", "errors")) == 3
    text = "mark virtual_time has no effect in pytest.param or by add_marker"
    names = ("TestIt::test_param*2", "test_added", "test_marked_twice*2")
    result.stdout.fnmatch_lines_random([f"*{name}*{text}*" for name in names])


def test_the_virtual_clock_needs_a_running_loop(pytester: pytest.Pytester) -> None:
    """A plain test without a loop gets an error with the mark to use."""
    pytester.makepyfile("def test_it(virtual_clock):\n    virtual_clock.time()\n")

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*NotVirtualError: no event loop is running; use the clock in a coroutine, *run the *"]
    )


def test_anyio_runs_marked_tests_on_virtual_time(pytester: pytest.Pytester) -> None:
    """The mark or the project's `anyio_backend` chooses a virtual loop; unmarked tests do not."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import anyio

pytestmark = pytest.mark.anyio

@pytest.mark.virtual_time(seed=[1, 2])
async def test_marked(virtual_clock):
    with anyio.move_on_after(30) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert virtual_clock.time() == 30

@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualClockEventLoop})])
async def test_own_backend(virtual_clock):
    await virtual_clock.advance(30)
    assert anyio.current_time() == 30

@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_unmarked():
    assert not isinstance(asyncio.get_running_loop(), VirtualClockEventLoop)

@pytest.mark.virtual_time
async def test_deadlock():
    await anyio.sleep_forever()

@pytest.mark.virtual_time
async def test_after_a_deadlock(virtual_clock):
    await anyio.sleep(5)
    assert virtual_clock.time() == 5

@pytest.mark.virtual_time(patience=float("inf"))
async def test_thread(virtual_clock):
    with anyio.fail_after(30):
        assert await anyio.to_thread.run_sync(sum, [1, 2]) == 3
    assert virtual_clock.time() == 0
"""
    )

    result = run(pytester, *ANYIO)

    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *VirtualDeadlockError: deadlock at 0.0 s: *",
            "E *Task-* in test_deadlock, *test_*.py:*: await anyio.sleep_forever()",
        ]
    )


def test_a_deadlock_fails_only_its_test(pytester: pytest.Pytester) -> None:
    """With pytest-asyncio, the next test has its own loop."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

async def test_deadlock():
    await asyncio.Event().wait()

async def test_after_a_deadlock():
    await asyncio.sleep(5)
"""
    )

    result = run(pytester, *ASYNCIO)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *Task-* in test_deadlock, *test_*.py:*"])


def test_ctrl_c_in_the_cleanup_of_a_deadlock_ends_the_session(pytester: pytest.Pytester) -> None:
    """It is not replaced by the deadlock, after which pytest would run the other tests."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

async def test_deadlock():
    try:
        await asyncio.Event().wait()
    finally:
        raise KeyboardInterrupt

async def test_that_must_not_run():
    pass
"""
    )

    result = run(pytester, *ASYNCIO)

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes()


def test_a_deadlock_does_not_end_a_shared_loop_under_anyio(pytester: pytest.Pytester) -> None:
    """The plugin runs the tests and the fixtures of a loop in one task, which goes on."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import anyio

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
ends = []

@pytest.fixture(scope="module")
async def shared():
    yield asyncio.get_running_loop()
    await anyio.sleep(5)
    assert ends == ["deadlock", "after"]

async def test_deadlock(shared):
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.Event().wait)
    finally:
        await anyio.sleep(5)
        ends.append("deadlock")

async def test_deadlock_of_a_cleanup_that_passes(shared):
    try:
        await anyio.sleep_forever()
    except BaseException:
        pass

async def test_after_a_deadlock(shared):
    assert asyncio.current_task().cancelling() == 0
    assert asyncio.get_running_loop() is shared
    async with asyncio.timeout(30):
        await anyio.sleep(5)
    ends.append("after")
"""
    )

    result = run(pytester, *ANYIO)

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["E *VirtualDeadlockError: deadlock at 0.0 s: *"])


def test_a_deadlock_does_not_outlive_its_test_on_a_shared_loop_under_asyncio(
    pytester: pytest.Pytester,
) -> None:
    """The task of the test or the fixture ends before the error is reported, with its cleanup."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import pytest_asyncio
from hypothesis import given, settings, strategies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.virtual_time]
ends = []

@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lock():
    yield asyncio.Lock()
    await asyncio.sleep(5)
    assert ends == ["deadlock", "frozen", "fixture", "example", "after"]

@pytest.fixture
def ended():
    yield
    assert ends == ["deadlock"]

async def test_deadlock(lock, ended):
    try:
        async with lock:
            await asyncio.Event().wait()
    finally:
        await asyncio.sleep(5)
        ends.append("deadlock")

async def test_deadlock_in_a_frozen_block(virtual_clock):
    with virtual_clock.freeze():
        try:
            await asyncio.sleep(5)
        finally:
            try:
                await asyncio.sleep(5)
            finally:
                ends.append("frozen")

async def test_deadlock_of_a_cleanup_that_passes(lock):
    try:
        await asyncio.Event().wait()
    except BaseException:
        pass

@pytest_asyncio.fixture(loop_scope="module")
async def stuck(lock):
    try:
        async with lock:
            await asyncio.Event().wait()
            yield
    finally:
        ends.append("fixture")

async def test_deadlock_of_a_fixture(stuck):
    pass

@settings(max_examples=1, database=None)
@given(strategies.none())
async def test_deadlock_of_an_example(lock, nothing):
    try:
        async with lock:
            await asyncio.Event().wait()
    finally:
        if "example" not in ends:
            ends.append("example")

async def test_after_a_deadlock(lock):
    assert len(asyncio.all_tasks()) == 1
    async with asyncio.timeout(30), lock:
        await asyncio.sleep(5)
    ends.append("after")
"""
    )

    result = run(pytester, *ASYNCIO, "-p", "no:hypothesispytest")

    result.assert_outcomes(passed=1, failed=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            "E *VirtualDeadlockError: deadlock at 0.0 s: *; waiting tasks: 1",
            "E *Task-* in test_deadlock, *test_*.py:*: await asyncio.Event().wait()",
        ]
    )


def test_the_fixtures_work_without_an_async_plugin(pytester: pytest.Pytester) -> None:
    """The fixtures work in plain tests, and pytest-asyncio is not imported."""
    pytester.makepyfile(
        ASYNC_TEST
        + """
import sys

def test_manual(manual_timer):
    fired = []
    manual_timer.call_later(30, fired.append, "x")
    assert manual_timer.advance(30) == 1
    assert fired == ["x"]

def test_own_loop(virtual_clock):
    async def hour():
        await asyncio.sleep(3600)
        return virtual_clock.time()

    with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
        assert runner.run(hour()) == 3600

def test_nothing_else_was_loaded():
    assert {"pytest_asyncio", "anyio", "uvloop", "structlog"} & set(sys.modules) == set()
"""
    )

    result = run(pytester)

    result.assert_outcomes(passed=3)
