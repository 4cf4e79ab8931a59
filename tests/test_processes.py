"""A process that is stopped and goes on, and one that forks while deadlines are pending."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "_processes.py"

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_stopped_process_fires_every_deadline_once_and_in_order() -> None:
    """Those that came due meanwhile as soon as it goes on; none is early, none is lost."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "stop"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "armed\n"
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        found = json.loads(process.communicate()[0])

    due = [deadline for deadline, _ in found["fired"]]
    assert process.returncode == 0
    assert len(due) == len(set(due)) == 200
    assert due == sorted(due)
    assert all(at >= deadline for deadline, at in found["fired"])
    assert found["pending"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    """Deadlines of the parent fire in the parent alone, those of the child in the child alone."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), "fork"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert sorted(found["parent"]) == ["parent", "timer of the parent"]
    assert (found["child"], found["status"]) == (["child"], 0)
