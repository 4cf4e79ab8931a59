"""CPython's own tests of timeouts, `wait_for` and locks pass with ours in place of asyncio's.

The tests are those of the running interpreter, so ours follows what each Python does.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MODULES = ("test_timeouts", "test_waitfor", "test_locks")

#: What is known to fail, `module.Class.test` to (loop or "both", first Python that it concerns, the
#: reason why that is right). Nothing is.
LEFT_OUT: dict[str, tuple[str, tuple[int, int], str]] = {}

Run = dict[str, dict[str, Any]]


def _runs_tests() -> bool:
    return find_spec("test") is not None and find_spec("test.test_asyncio") is not None


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    """Which event loop the tests run on."""
    name: str = request.param
    if name == "uvloop":
        pytest.importorskip("uvloop")
        if sys.version_info >= (3, 14):
            pytest.skip("the tests' loops come from the policy, which is deprecated")
    return name


@pytest.fixture(scope="module")
def run(loop: str) -> Run:
    """What became of every test, and how often ours was called."""
    if not _runs_tests():
        pytest.skip("this interpreter was installed without its own tests (test.test_asyncio)")
    program = Path(__file__).with_name("run_cpython_tests.py")
    answer = subprocess.run(
        [sys.executable, str(program), loop, *MODULES],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert answer.returncode == 0, answer.stderr
    result: Run = json.loads(answer.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def left_out(loop: str) -> set[str]:
    """Names in the table that concern this Python and this loop."""
    return {
        name
        for name, (where, since, _) in LEFT_OUT.items()
        if where in {"both", loop} and sys.version_info >= since
    }


@pytest.mark.slow
def test_all_pass_but_those_left_out(run: Run, left_out: set[str]) -> None:
    """What fails is in the table, and what is in the table exists and still fails."""
    failed = {name: end for name, end in run["ends"].items() if end not in {"passed", "skipped"}}

    assert failed.keys() == left_out, "\n".join(failed.values())


@pytest.mark.slow
def test_ours_was_called(run: Run) -> None:
    """The tests went through our functions, and there were tests."""
    assert all(run["calls"].get(name, 0) > 1 for name in ("timeout", "timeout_at", "wait_for"))
    for module in MODULES:
        passed = [name for name, end in run["ends"].items() if end == "passed"]
        assert sum(name.startswith(module) for name in passed) > 10
