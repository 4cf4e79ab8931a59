"""The documentation site in Chromium: search results, narrow pages, contrast."""

import functools
import http.server
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import ROOT, axe_violations

pytestmark = [pytest.mark.browser, pytest.mark.realtime, pytest.mark.timeout(900)]

FIRST = {
    "tutorial": "tutorial/request-timeouts/",
    "install": "how-to/install-and-build/",
    "timeout": "how-to/time-out-requests/",
    "long poll": "how-to/long-poll-over-http/",
    "FastAPI": "tutorial/long-poll/",
    "Starlette": "how-to/long-poll-over-http/",
    "aiohttp": "how-to/long-poll-over-http/",
    "uvicorn": "how-to/run-any-server/",
    "gunicorn": "how-to/run-any-server/",
    "Celery": "coming-from-apscheduler-or-celery/",
    "APScheduler": "coming-from-apscheduler-or-celery/",
    "cron": "how-to/run-durable-timers/",
    "heartbeat": "how-to/close-idle-connections/",
    "websocket": "how-to/close-idle-connections/",
    "PostgreSQL": "how-to/several-workers/",
    "Redis": "how-to/several-workers/",
    "Kafka": "coming-from-kafka/",
    "Spark": "how-to/run-spark-on-a-cluster/",
    "delta": "how-to/read-and-write-delta-lake/",
    "idle": "how-to/detect-idle-clients/",
    "security": "reference/security/",
    "limits": "reference/limits/",
    "errors": "reference/errors/",
    "metrics": "reference/metrics/",
    "prometheus": "reference/metrics/",
    "threads": "how-to/use-from-threads/",
    "virtual time": "tutorial/virtual-time/",
    "pytest": "how-to/test-with-virtual-time/",
    "benchmark": "explanation/how-we-benchmark/",
    "cascade": "explanation/layers/",
    "glossary": "reference/glossary/",
    "TimingWheel": "reference/wheel/",
    "Purgatory": "reference/purgatory/",
}
IMAGES = ROOT / "docs" / "images"
CARD = """
<body style="margin: 0; background: #161b24; color: #fff; font: 44px system-ui, sans-serif">
<div style="width: 860px; margin: 24px auto 0">WHEEL</div>
<div style="text-align: center; font-size: 64px; font-weight: bold">aiowheel</div>
</body>
"""
SEEN = (
    "",
    "tutorial/request-timeouts/",
    "how-to/long-poll-over-http/",
    "reference/timer/",
    "explanation/figures/",
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A handler that serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site; yield its address."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


def test_a_shared_link_shows_the_card(site: str, browser: Any) -> None:
    """The picture that a page names for previews is drawn here and is part of the site."""
    page = browser.new_page(viewport={"width": 1200, "height": 630}, reduced_motion="reduce")
    page.set_content(CARD.replace("WHEEL", (IMAGES / "wheel.svg").read_text("utf-8")))
    page.screenshot(path=IMAGES / "card.png")
    page.goto(f"{site}reference/timer/")
    named = page.get_attribute("meta[property='og:image']", "content")
    page.close()

    assert named == "http://localhost:8000/images/card.png"
    with urllib.request.urlopen(f"{site}images/card.png") as answer:
        assert answer.headers["Content-Type"] == "image/png"


def test_a_search_finds_the_page_first(site: str, browser: Any) -> None:
    """The words are those that a user would type."""
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(site)
    page.click("input.md-search__input")
    found: dict[str, str] = {}
    for word in FIRST:
        page.fill("input.md-search__input", "")
        page.press("input.md-search__input", "End")  # the page searches on key release
        page.wait_for_selector(".md-search-result__item", state="detached")
        page.fill("input.md-search__input", word)
        page.press("input.md-search__input", "End")
        page.wait_for_selector(".md-search-result__item > a", state="attached")
        page.wait_for_timeout(200)  # the list is filled in steps
        link = page.query_selector(".md-search-result__item > a")
        found[word] = link.get_attribute("href").removeprefix(site).partition("?")[0]
    page.close()

    assert {word: at for word, at in found.items() if at != FIRST[word]} == {}


@pytest.mark.parametrize("width", [390, 768, 1400])
def test_no_page_is_wider_than_its_window(site: str, browser: Any, width: int) -> None:
    """Wide tables and code scroll separately; nothing comes from another server."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    requested: set[str] = set()

    def note(request: Any) -> None:
        requested.add(request.url)

    page.on("request", note)
    for path in SEEN:
        page.goto(site + path)
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, path
    page.close()

    assert [url for url in requested if not url.startswith((site, "data:"))] == []


@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(site: str, browser: Any, scheme: str, width: int) -> None:
    """Contrast, names and headings, in both schemes, on a phone and on a desktop."""
    page = browser.new_page(
        color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 900}
    )
    found: list[str] = []
    for path in SEEN:
        page.goto(site + path)
        found += [f"{path}: {each}" for each in axe_violations(page)]
    page.close()

    assert found == []
