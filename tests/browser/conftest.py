"""A real Chromium, and an application for it to look at. `make test-browser` runs these tests."""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
# It runs as root in containers, and has nobody to call home to.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
APPLICATION = Path(__file__).with_name("busy_application.py")

OpenPage = Callable[..., Any]  # a Playwright page; typed loosely, for the linters run without it


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, for as long as the tests run."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install --group browser"
    )
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens pages; whatever they complain about fails the test."""
    pages: list[Any] = []
    complaints: list[str] = []

    def open_one(url: str, *, may_lose_server: bool = False, **options: Any) -> Any:
        page = browser.new_page(**({"viewport": {"width": 1240, "height": 900}} | options))
        pages.append(page)
        page.on("pageerror", complain)
        if not may_lose_server:
            page.on("console", complain_of_console)
        page.goto(url)
        return page

    def complain(error: object) -> None:
        complaints.append(str(error))

    def complain_of_console(said: Any) -> None:
        if said.type != "log":
            complaints.append(said.text)

    yield open_one
    for page in pages:
        page.close()
    assert complaints == []


@contextlib.contextmanager
def busy_application(port: int = 0, pending: int = 400) -> Generator[str]:
    """The dashboard of an application with much to do, in a process of its own; its address."""
    port = port or free_port()
    with subprocess.Popen([sys.executable, str(APPLICATION), str(port), str(pending)]) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/wheels/"
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def serve(*arguments: str) -> Generator[str]:
    """`aiowheel serve --dashboard`, in a process of its own; its address."""
    port = free_port()
    command = [sys.executable, "-m", "aiowheel", "serve", "--dashboard", "--port", str(port)]
    command += arguments
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Return once somebody listens there."""
    for _ in range(1_000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise TimeoutError(f"nobody listens on port {port}")


@pytest.fixture(scope="module")
def application() -> Iterator[str]:
    """One application for the tests of a module."""
    with busy_application() as url:
        yield url
