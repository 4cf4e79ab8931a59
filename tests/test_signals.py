"""The suite behaves alike in the foreground and in the background of a shell."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no shell to start jobs"),
]


def test_sigint_interrupts_this_process_and_its_children() -> None:
    """A shell starts background jobs with SIGINT ignored; the suite restores the default."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    child = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=200
    )

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "KeyboardInterrupt" in child.stderr


@pytest.mark.slow
def test_sigint_interrupts_a_background_job() -> None:
    """`trap '' INT` does what a shell does before it starts `make test &`."""
    only = f"{__file__}::{test_sigint_interrupts_this_process_and_its_children.__name__}"
    plugins = ["-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    job = [sys.executable, "-m", "pytest", "-q", *plugins, only]

    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *job],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
