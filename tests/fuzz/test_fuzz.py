"""Every input on which a fuzz target has failed, and the first inputs of every target.

`make fuzz MINUTES=10` searches for more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .targets import FAILURES, TARGETS

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_that_failed_once_passes(name: str) -> None:
    """The first inputs of the target pass as well."""
    target = TARGETS[name]

    for given in (*target.seeds, *(path.read_bytes() for path in target.failures()), b""):
        target.run(given)


def test_every_kept_input_has_a_target() -> None:
    """A folder without a target would never be read."""
    assert {path.name for path in FAILURES.glob("*")} <= TARGETS.keys()


def test_every_target_names_files_that_exist() -> None:
    """The coverage of these files is reported."""
    for target in TARGETS.values():
        assert all((ROOT / module).is_file() for module in target.modules)


def test_without_atheris_the_run_is_skipped_in_one_line(tmp_path: Path) -> None:
    """The interpreter may be one for which atheris has no wheel."""
    (tmp_path / "atheris.py").write_text("raise ImportError")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['fuzz', 'units']\n"
    program += "from tests.fuzz.fuzz import main; sys.exit(main())"

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("skipped: ")
