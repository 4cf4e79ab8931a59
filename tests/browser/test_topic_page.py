"""The example page that subscribes to a topic, in a real browser, from another origin."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks._ports import free_port

from .conftest import OpenPage, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.realtime]

FOLDER = Path(__file__).parents[2] / "examples" / "browser"


class Silent(SimpleHTTPRequestHandler):
    """A handler that serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Log nothing."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """The origin of the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=FOLDER)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def serving(port: int, *arguments: str) -> Generator[str]:
    """Run `aiowheel serve` with these options; yield its address."""
    command = [sys.executable, "-m", "aiowheel", "serve", "--port", str(port), *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def messages(page: Any) -> list[str]:
    """Return the lines of the page's list."""
    texts: list[str] = page.locator("#messages li").all_inner_texts()
    return texts


def is_open(page: Any) -> None:
    """Wait until the page is connected."""
    page.wait_for_selector("#status[data-state=open]")


def wait_for_messages(page: Any, wanted: list[str]) -> None:
    """Wait until the list has as many lines as *wanted*; they must be these."""
    page.wait_for_function(
        "count => document.querySelectorAll('#messages li').length >= count", arg=len(wanted)
    )
    assert messages(page) == wanted


def test_one_page_shows_what_another_one_publishes(origin: str, open_page: OpenPage) -> None:
    """Messages come in order, once; a later page gets the kept ones. Markup is shown as text."""
    with serving(free_port(), "--allow-origin", origin) as service:
        first = open_page(f"{origin}/?service={service}")
        is_open(first)
        for text in ("one", "<b>two</b>", "three"):
            first.fill("input", text)
            first.click("button")
            first.wait_for_function("() => document.querySelector('input').value === ''")
        second = open_page(f"{origin}/?service={service}")

        for page in (first, second):
            wait_for_messages(page, ["one", "<b>two</b>", "three"])
        assert first.locator("output").inner_text() == "published as 3"
        first.close()
        second.close()


def test_a_page_survives_a_restart_of_the_service(origin: str, open_page: OpenPage) -> None:
    """The page waits, reconnects by itself, and shows that the topic began anew."""
    port = free_port()
    with serving(port, "--allow-origin", origin) as service:
        httpx.post(f"{service}/topics/news", content="before", timeout=60)
        page = open_page(f"{origin}/?service={service}", may_lose_server=True)
        wait_for_messages(page, ["before"])
    page.wait_for_selector("#status[data-state=waiting]")
    with serving(port, "--allow-origin", origin) as service:
        httpx.post(f"{service}/topics/news", content="after", timeout=60)
        wait_for_messages(page, ["before", "the topic began anew", "after"])
        page.close()


def test_a_page_that_was_refused_comes_back(origin: str, open_page: OpenPage) -> None:
    """An `EventSource` stops after a 503; the page tries again."""
    with serving(free_port(), "--allow-origin", origin, "--max-waiters", "1") as service:
        first = open_page(f"{origin}/?service={service}")
        is_open(first)
        second = open_page(f"{origin}/?service={service}", may_lose_server=True)
        assert second.locator("#status").get_attribute("data-state") == "waiting"
        first.close()
        is_open(second)
        httpx.post(f"{service}/topics/news", content="x", timeout=60)
        wait_for_messages(second, ["x"])
        second.close()


def test_a_page_of_another_origin_can_do_nothing(origin: str, open_page: OpenPage) -> None:
    """The page reads nothing, and what it sends is not published."""
    with serving(free_port(), "--allow-origin", "https://app.example.com") as service:
        httpx.post(f"{service}/topics/news", content="secret", timeout=60)
        page = open_page(f"{origin}/?service={service}", may_lose_server=True)
        page.fill("input", "forged")
        page.click("button")
        page.wait_for_function("() => document.querySelector('output').textContent !== ''")

        assert page.locator("output").inner_text() == "the service cannot be reached"
        assert messages(page) == []
        assert httpx.get(f"{service}/topics/news", timeout=60).json()["version"] == 1
        page.close()
