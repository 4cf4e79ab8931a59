"""CPython's own tests of timers pass on wheel loops and with timeouts of this package.

The tests are those of the running interpreter, so the behaviour follows each Python version. The
quick modules run here; `make test-stdlib` runs every module with timers.
"""

from importlib.util import find_spec

import pytest
from compare_loops import LEFT_OUT, MODULES, PACKAGE, Comparison, compare, cpython_tests
from guarded_run import Run, Selection

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.skipif(
        find_spec("test") is None or find_spec("test.test_asyncio") is None,
        reason="this interpreter was installed without its own tests (test.test_asyncio)",
    ),
]
QUICK = ("test_locks", "test_queues", "test_runners", "test_timeouts", "test_waitfor")
REPLACED = ("test_timeouts", "test_waitfor", "test_locks")
VIRTUAL = ("test_locks", "test_queues", "test_streams", "test_taskgroups", *REPLACED[:2])


@pytest.fixture(
    scope="module", params=["asyncio", pytest.param("uvloop", marks=pytest.mark.thorough)]
)
def base(request: pytest.FixtureRequest) -> str:
    """The loop below the wheel, or the loop on which our timeouts run."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def comparison(base: str) -> Comparison:
    """The quick modules on a base loop and on the wheel above it."""
    return compare(cpython_tests(QUICK), base)


@pytest.fixture(scope="module")
def replaced(base: str) -> Run:
    """The tests that use timeouts, with `timeout`, `timeout_at` and `wait_for` replaced by ours."""
    return Selection(tuple(PACKAGE + name for name in REPLACED), replace=True).run_on(base)


def test_tests_that_pass_on_the_base_loop_pass_on_the_wheel_loop(comparison: Comparison) -> None:
    """No test fails only on the wheel."""
    assert comparison.only_ours() == set()


def test_there_were_tests_and_they_ran_on_our_loops(comparison: Comparison) -> None:
    """An empty run would pass as well."""
    assert comparison.ours.counts["loops"] > 100
    for module in QUICK:
        assert sum(test.startswith(PACKAGE + module) for test in comparison.passed()) > 10


def test_every_test_left_out_exists_and_would_fail() -> None:
    """Each reason is still true."""
    names = frozenset(PACKAGE + test for test in LEFT_OUT)

    run = Selection((f"{PACKAGE}test_base_events",), only=names).run_on("wheel on asyncio")

    assert run.failed() == names


def test_the_full_run_has_the_quick_modules() -> None:
    """The full run skips none of the quick modules."""
    assert set(QUICK) < set(MODULES)


def test_our_timeouts_do_what_asyncios_do(replaced: Run) -> None:
    """No test fails."""
    assert replaced.failed() == set(), "\n".join(replaced.ends[test] for test in replaced.failed())


def test_our_timeouts_were_called(replaced: Run) -> None:
    """The tests called our functions, and there were tests."""
    assert all(replaced.counts[name] > 1 for name in ("timeout", "timeout_at", "wait_for"))
    for module in REPLACED:
        assert sum(test.startswith(PACKAGE + module) for test in replaced.passed()) > 10


@pytest.mark.parametrize("module", VIRTUAL)
def test_the_virtual_loop_behaves_as_asyncios_except_for_time(module: str) -> None:
    """The tests also use real sockets, with TLS."""
    run = Selection((PACKAGE + module,)).run_on("virtual")

    assert run.failed() == set(), "\n".join(run.ends[test] for test in run.failed())
    assert min(len(run.passed()), run.counts["loops"]) > 10
