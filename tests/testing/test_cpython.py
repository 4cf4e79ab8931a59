"""CPython's own tests pass on the virtual loop: time apart, it is asyncio's."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("run_cpython_tests.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info >= (3, 14), reason="the policy is deprecated there"),
    pytest.mark.skipif(
        find_spec("test") is None or find_spec("test.test_asyncio") is None,
        reason="this interpreter was installed without its own tests (test.test_asyncio)",
    ),
]


@pytest.mark.parametrize(
    "modules",
    [
        ("test_locks", "test_queues", "test_taskgroups", "test_timeouts", "test_waitfor"),
        ("test_streams",),
    ],
    ids=["timers", "sockets"],
)
def test_no_test_of_the_interpreter_fails(modules: tuple[str, ...]) -> None:
    """Locks to timeouts, and streams over real sockets, TLS included."""
    answer = subprocess.run(
        [sys.executable, PROGRAM, *modules], capture_output=True, text=True, check=False, timeout=50
    )

    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout.splitlines()[-1])
    assert result["failed"] == [], answer.stderr
    assert min(result["ran"], result["loops"]) > 20
