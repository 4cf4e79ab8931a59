"""Reference counts stay level: creating and ending objects many times leaks nothing.

The counts run in their own process, where nothing else allocates.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "_references.py"
CYCLES = 100
#: The blocks that caches may keep. A leak of one block a cycle would be five times as many.
MOST = 20


@pytest.mark.slow
def test_counts_stay_level() -> None:
    """The counts cover memory blocks and references to objects that all instances share."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(CYCLES)], capture_output=True, text=True, check=True
    )

    found = json.loads(run.stdout)
    assert run.stderr == ""
    assert len(found["blocks"]) == 7
    assert {name: count for name, count in found["blocks"].items() if count > MOST} == {}
    assert {name: count for name, count in found["references"].items() if count > MOST} == {}
