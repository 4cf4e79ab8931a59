"""Reference counts stay level: making and ending any object many times keeps none of it.

In a process of its own, where nothing else allocates.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "_references.py"
CYCLES = 200
#: What caches may keep. An object that each cycle kept would be ten times as many.
MOST = 20


@pytest.mark.slow
def test_counts_stay_level() -> None:
    """Blocks of memory, and references to what all instances share."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(CYCLES)], capture_output=True, text=True, check=True
    )

    found = json.loads(run.stdout)
    assert run.stderr == ""
    assert len(found["blocks"]) == 7
    assert {name: count for name, count in found["blocks"].items() if count > MOST} == {}
    assert {name: count for name, count in found["references"].items() if count > MOST} == {}
