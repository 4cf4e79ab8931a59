"""Schemathesis sends the service valid and invalid requests from its OpenAPI document.

`make test-api` runs it. It makes hundreds of requests; no answer may be a 5xx, and each answer must
be one that the document names.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import process

pytestmark = [pytest.mark.api, pytest.mark.realtime, pytest.mark.timeout(180)]

# A poll of a removed topic is legal, because topics need not exist; schemathesis would fail it.
NOT_OURS = "use_after_free"


def test_the_service_follows_its_openapi_document(tmp_path: Path) -> None:
    """All checks of schemathesis run, except one."""
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
            cwd=tmp_path,  # schemathesis creates a folder in the current one
        )
        code, errors = server.stop()

    sys.stdout.write(asked.stdout[-1_200:])
    assert asked.returncode == 0, asked.stdout
    assert (code, errors) == (0, "")
