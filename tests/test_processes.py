"""A process with pending deadlines is stopped, forks, has its clock set or has no descriptors."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "_processes.py"

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_stopped_process_fires_every_deadline_once_and_in_order() -> None:
    """Deadlines that pass during the stop fire as soon as the process continues; none is lost."""
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
    """The parent's deadlines fire only in the parent, the child's only in the child."""
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


def run_program(what: str, **environment: str) -> Any:
    """Run the program, which must write nothing to stderr; return its output."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), what],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    assert run.stderr == ""
    return json.loads(run.stdout)


@pytest.mark.linux
def test_a_wall_clock_that_is_set_changes_no_deadline(tmp_path: Path) -> None:
    """`Timer` and wheel loop: a day ahead fires nothing early, a day back delays nothing."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        pytest.skip("libfaketime is not installed; on Debian: apt-get install libfaketime")
    (tmp_path / "offset").write_text("+0\n")

    runs = run_program(
        "clock",
        LD_PRELOAD=str(libraries[0]),
        FAKETIME_TIMESTAMP_FILE=str(tmp_path / "offset"),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )

    for found in runs:
        days = [round(step / 86_400) for step in found["steps"]]
        assert days == [1, -2, 1]
        assert len(found["fired"]) == 3
        assert all(due <= at for due, at in found["fired"])
        assert found["pending"] == 1


@pytest.mark.linux
def test_timers_need_no_descriptor_and_a_loop_reports_that_it_needs_one() -> None:
    """Creating a loop without a free descriptor raises the system's error and leaks nothing."""
    found = run_program("descriptors")

    assert sorted(found["fired"]) == ["operation", "shared timer", "thread", "timer"]
    assert found["loop"] == [errno.EMFILE, True]
