"""Schemathesis asks the service what its OpenAPI document allows, and what it does not.

`make test-api`. Requests by the hundred, made from the document: none may be answered with 5xx, and
every answer has to be one that the document names.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import process

pytestmark = [pytest.mark.api, pytest.mark.realtime, pytest.mark.timeout(180)]

# A topic that was removed can be waited for as any other that does not exist: that is no failure.
NOT_OURS = "use_after_free"


def test_the_service_keeps_to_its_document(tmp_path: Path) -> None:
    """Every check that schemathesis has, but one."""
    schemathesis = Path(sys.executable).parent / "schemathesis"
    if not schemathesis.exists():
        pytest.skip("schemathesis is not installed: pip install --group api")

    with process("--max-timeout", "1") as server:
        url = f"{server.url}/openapi.json"
        command = [
            str(schemathesis),
            "run",
            url,
            "--max-examples",
            "40",
            "--seed",
            "1",
            "--no-color",
        ]
        asked = subprocess.run(
            [*command, "--checks", "all", "--exclude-checks", NOT_OURS],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            cwd=tmp_path,  # it leaves a folder where it runs
        )
        code, errors = server.stop()

    sys.stdout.write(asked.stdout[-1_200:])
    assert asked.returncode == 0, asked.stdout
    assert (code, errors) == (0, "")
