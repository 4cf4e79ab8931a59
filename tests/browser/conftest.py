"""A real Chromium, and an application to display; `make test-browser` runs these tests."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks._ports import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
# Chromium runs as root in containers, and must make no connections of its own.
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
ROOT = Path(__file__).parents[2]
AXE = ROOT / os.environ.get("AIOWHEEL_AXE", ".venv/node_modules/axe-core/axe.min.js")

OpenPage = Callable[..., Any]  # a Playwright page; linters run without Playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, which runs as long as the tests."""
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
    """A function that opens pages; any error that a page reports fails the test."""
    pages: list[Any] = []
    errors: list[str] = []

    def open_one(url: str, *, may_lose_server: bool = False, **options: Any) -> Any:
        page = browser.new_page(**({"viewport": {"width": 1240, "height": 900}} | options))
        pages.append(page)
        page.on("pageerror", record)
        if not may_lose_server:
            page.on("console", record_console)
        page.goto(url)
        return page

    def record(error: object) -> None:
        errors.append(str(error))

    def record_console(said: Any) -> None:
        if said.type != "log":
            errors.append(said.text)

    yield open_one
    for page in pages:
        page.close()
    assert errors == []


def axe_violations(page: Any) -> list[str]:
    """Return the rules of axe-core that the page breaks, each with the first element concerned."""
    if not AXE.exists():
        pytest.skip(f"{AXE} does not exist: npm install axe-core, or set AIOWHEEL_AXE")
    page.evaluate(AXE.read_text("utf-8"))
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in report["violations"]]


@contextlib.contextmanager
def busy_application(port: int = 0, pending: int = 400, folder: str = "") -> Generator[str]:
    """Run the dashboard of a busy application in its own process; yield its address."""
    port = port or free_port()
    command = [sys.executable, str(APPLICATION), str(port), str(pending), folder]
    with subprocess.Popen(command) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/wheels/"
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def serve(*arguments: str) -> Generator[str]:
    """Run `aiowheel serve --dashboard` in its own process; yield its address."""
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


def wait_for(port: int) -> None:
    """Return when a server listens on the port."""
    for _ in range(1_000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise TimeoutError(f"no server listens on port {port}")


@pytest.fixture(scope="module")
def application() -> Iterator[str]:
    """One application for the tests of a module."""
    with busy_application() as url:
        yield url
