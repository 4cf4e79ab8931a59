"""The tutorial works: a reader who copies its blocks, page by page, sees the output on the pages.

The ordinary run follows the pages in the environment of the tests. `make test-stranger-path` builds
the wheel and follows README.md and the pages from an empty environment.

A `python` block with a title is saved under that name. A `console` block is run, and the text below
a command must be its output; `...` stands for any text. A here-document that ends with `END` writes
a file. A console with a title is another terminal: its command may keep running, and a `text` block
of the same title is its final output. The first terminal runs the server.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from doctest import ELLIPSIS, OutputChecker
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SERVERS_PAGE = ROOT / "docs/how-to/run-any-server.md"
# Sections whose commands write their own input.
LOGS = [
    (ROOT / "README.md", "Data"),
    (ROOT / "docs/how-to/detect-idle-clients.md", "From an access log"),
    (ROOT / "docs/how-to/detect-idle-clients.md", "From nested JSON"),
    (ROOT / "docs/how-to/replay-operations.md", "Two files in, one table out"),
]
TUTORIAL = [
    ROOT / "docs/tutorial" / name
    for name in ("request-timeouts.md", "long-poll.md", "virtual-time.md", "dashboard.md")
]
BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
PATIENCE = 120.0
INSTALLS = ("python3 -m venv", ". tutorial/", "pip install")


class Reader:
    """A simulated reader, who copies the blocks of pages into files and terminals of one folder."""

    def __init__(self, folder: Path, *, package: str | None) -> None:
        """Install *package* as described by the pages; None uses the installed packages."""
        self._folder = folder
        self._log = folder / "server.log"
        self._package = package
        self._terminals: dict[str, subprocess.Popen[str]] = {}
        self._environment = os.environ | {"PATH": f"{folder}/tutorial/bin:{os.environ['PATH']}"}
        for name in ("PYTHONPATH", "PYTEST_ADDOPTS"):
            self._environment.pop(name, None)
        if package is None:
            self._environment["PYTHONPATH"] = str(ROOT)
            self._use_this_python()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def _use_this_python(self) -> None:
        programs = self._folder / "tutorial/bin"
        programs.mkdir(parents=True)
        for name, module in {
            "python": "",
            "aiowheel": "-m aiowheel",
            "uvicorn": "-m uvicorn",
            "gunicorn": "-m gunicorn",
        }.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)

    def follow(self, text: str) -> None:
        """Follow the text from top to bottom; close its terminals at the end."""
        try:
            for block in BLOCK.finditer(text):
                if block["language"] == "python" and block["title"]:
                    program = block["text"].replace("8000", str(self._port))
                    (self._folder / block["title"]).write_text(program, "utf-8")
                elif block["language"] == "console":
                    self._type(block["text"], block["title"])
                elif block["language"] == "text" and block["title"]:
                    self._compare(block["text"], self._terminals.pop(block["title"]))
        finally:
            self.close()

    def run_python(self, page: Path) -> None:
        """Save each `python` block of the page as a program and run it."""
        for block in BLOCK.finditer(page.read_text("utf-8")):
            if block["language"] == "python":
                (self._folder / "block.py").write_text(block["text"], "utf-8")
                self._compare("", self._start("python block.py"))

    def _type(self, text: str, title: str | None) -> None:
        for each in text.removeprefix("$ ").split("\n$ "):
            command, _, expected = each.partition("\n")
            if command.endswith("<<'END'"):
                command, expected = each, ""
            if command.startswith(INSTALLS):
                if self._package is None:
                    continue
                command = command.replace("./aiowheel", self._package)
            command = command.replace("8000", str(self._port))
            terminal = self._start(command)
            if title == "first terminal":
                self._terminals[title] = terminal
                self._wait_for_server(terminal)
            elif expected or title is None:
                self._compare(expected, terminal)
            else:
                self._terminals[title] = terminal
                self._wait_for_request()

    def _start(self, command: str) -> subprocess.Popen[str]:
        if command.startswith("uvicorn"):  # its log shows when a request has arrived
            self._log.write_text("")
            command = f"{command} --log-level trace >{self._log.name} 2>&1"
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _compare(self, expected: str, terminal: subprocess.Popen[str]) -> None:
        found, _ = terminal.communicate(timeout=PATIENCE if self._package is None else 600)
        assert terminal.returncode == 0, found
        if expected:
            found = found if found.endswith("\n") else found + "\n"
            assert OutputChecker().check_output(expected, found, ELLIPSIS), found

    def _wait_for_server(self, server: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            assert server.poll() is None, "the server has ended"
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.02)

    def _wait_for_request(self) -> None:
        """Wait until the request has reached the application, because a reader would be slower."""
        end = time.monotonic() + PATIENCE
        while not re.search(r"ASGI \[\d+\] Started scope=.*'GET'", self._log.read_text()):
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.02)
        time.sleep(0.2)

    def close(self) -> None:
        """Send Ctrl+C to every terminal."""
        for terminal in self._terminals.values():
            os.killpg(terminal.pid, signal.SIGINT)
        for terminal in self._terminals.values():
            try:
                terminal.communicate(timeout=PATIENCE)
            finally:
                if terminal.poll() is None:
                    os.killpg(terminal.pid, signal.SIGKILL)
                    terminal.wait()
        self._terminals.clear()


def section(page: str, title: str) -> str:
    """Return the section of the page with this title."""
    (found,) = (each for each in page.split("\n## ") if each.startswith(f"{title}\n"))
    return found


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Return a reader with all packages installed."""
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("curl or bash is not installed")
    return Reader(tmp_path, package=None)


@pytest.mark.parametrize("page", TUTORIAL, ids=lambda page: page.stem)
def test_the_tutorial_can_be_followed(page: Path, reader: Reader) -> None:
    """Each page works by itself, in the environment of the tests."""
    reader.follow(page.read_text("utf-8"))


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn", "hypercorn", "granian"])
def test_a_server_runs_on_the_wheel(server: str, reader: Reader) -> None:
    """Each server works as its section describes, after the application of the page's start."""
    pytest.importorskip(server, reason=f"{server} is not installed")
    page = SERVERS_PAGE.read_text("utf-8")

    reader.follow(page.partition("\n## ")[0] + "\n" + section(page, server))


@pytest.mark.parametrize(("page", "title"), LOGS, ids=lambda value: getattr(value, "stem", value))
def test_a_section_with_its_input_has_its_output(page: Path, title: str, reader: Reader) -> None:
    """The commands write the input, and print the results as on the page."""
    reader.follow(section(page.read_text("utf-8"), title))


def test_each_tutorial_page_links_to_the_next() -> None:
    """Each page but the last one links to its successor."""
    for page, following in pairwise(TUTORIAL):
        assert f"]({following.name})" in page.read_text("utf-8").splitlines()[-1]


def test_wrong_output_on_a_page_fails(tmp_path: Path) -> None:
    """Wrong output on a page fails; otherwise no page could fail."""
    page = tmp_path / "page.md"
    page.write_text(
        textwrap.dedent(
            """\
            ```python title="hello.py"
            print("hello")
            ```

            ```console
            $ python hello.py
            goodbye
            ```
            """
        )
    )

    with pytest.raises(AssertionError, match="hello"):
        Reader(tmp_path, package=None).follow(page.read_text("utf-8"))


@pytest.mark.stranger
@pytest.mark.timeout(1200)
def test_the_tutorial_works_from_an_empty_environment(tmp_path: Path) -> None:
    """Build the wheel, make an empty environment, follow README.md and the tutorial."""
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([sys.executable, "-m", *build, tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("aiowheel-*.whl")
    reader = Reader(tmp_path, package=f"./{wheel.name}")

    first, *others = TUTORIAL
    reader.follow(first.read_text("utf-8"))
    reader.run_python(ROOT / "README.md")
    for page in others:
        reader.follow(page.read_text("utf-8"))
