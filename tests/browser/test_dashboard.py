"""The dashboard in a real browser: it opens, moves, and tells the truth."""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import OpenPage, busy_application, free_port, serve

pytestmark = [pytest.mark.browser, pytest.mark.realtime]

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
MOST_BYTES = 60_000
MOST_IMAGE_BYTES = 200_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """`aiowheel serve --dashboard`."""
    with serve() as url:
        yield url


def wait_until_live(page: Any) -> None:
    """Return once samples come in."""
    page.wait_for_selector("#status[data-state=live]")
    page.wait_for_selector(".dial canvas")


def tile(page: Any, name: str) -> str:
    """The number under *name*."""
    text: str = page.locator(".tile", has_text=name).locator("dd").inner_text()
    return text


def picture(page: Any, index: int = 0) -> str:
    """What the dial shows, pixel by pixel."""
    shown: str = page.locator(".dial canvas").nth(index).evaluate("each => each.toDataURL()")
    return shown


def test_it_opens_and_moves(application: str, open_page: OpenPage) -> None:
    """Every level has its dial; hands turn between the samples; numbers are there."""
    page = open_page(application)
    wait_until_live(page)

    levels = int(page.locator("#about").inner_text().split("·")[1].split()[0])
    assert page.locator(".dial").count() == levels
    first = picture(page)
    page.wait_for_timeout(120)
    assert picture(page) != first
    assert int(tile(page, "Pending").replace(",", "")) > 300
    page.wait_for_selector("#lateness i:not(.none)", state="attached")
    assert page.locator(".purgatory").count() == 2


def test_it_loads_little_and_nothing_from_elsewhere(application: str, open_page: OpenPage) -> None:
    """Under 60 kB in all, from one host."""
    page = open_page("about:blank")
    fetched: dict[str, int] = {}

    def note(response: Any) -> None:
        if not response.url.endswith("/events"):
            fetched[response.url] = len(response.body())

    page.on("response", note)
    page.goto(application)
    wait_until_live(page)

    assert len(fetched) >= 8
    assert all(url.startswith(application) for url in fetched)
    assert sum(fetched.values()) < MOST_BYTES


def test_a_fired_operation_is_shown(server: str, open_page: OpenPage) -> None:
    """A poll is seen waiting, with its reason; after its timeout it is seen to have timed out."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)

    httpx.post(f"{server}/topics/weather", content="sun")
    httpx.get(f"{server}/topics/weather?since=1&timeout=1.2")

    ended = page.locator(".ended li.expired", has_text="weather")
    ended.wait_for()
    assert re.search(r"timed out\s+after [1-9][.\d]* s", ended.inner_text())


def test_a_waiting_operation_says_why(server: str, open_page: OpenPage) -> None:
    """Its key, where the counter stands and has to get to; gone when it is answered."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)
    httpx.post(f"{server}/topics/tides", content="low")
    port = int(server.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as poll:
        poll.sendall(b"GET /topics/tides?since=1&timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        row = page.locator("tbody tr", has_text="tides")
        row.wait_for()
        assert "tides to reach 2, now at 1" in row.inner_text()
        assert page.locator(".keys li", has_text="tides").count() == 1

        httpx.post(f"{server}/topics/tides", content="high")
        page.locator(".ended li.completed", has_text="tides").wait_for()
        row.wait_for(state="detached")


def test_keys_that_look_alike_have_a_row_each(server: str, open_page: OpenPage) -> None:
    """Long ones are shortened; however many looks come, there are as many rows as keys."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)
    port = int(server.rpartition(":")[2])
    with contextlib.ExitStack() as polls:
        for last in "abc":
            poll = polls.enter_context(socket.create_connection(("127.0.0.1", port)))
            name = "x" * 100 + last
            poll.sendall(
                b"GET /topics/%b?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n" % name.encode()
            )
        rows = page.locator(".keys li", has_text="x" * 57)
        rows.nth(2).wait_for()
        page.wait_for_timeout(1_000)
        assert rows.count() == 3
    rows.first.wait_for(state="detached")


def test_pause_stops_the_page_and_the_sampling(application: str, open_page: OpenPage) -> None:
    """Button and key; the stream is closed meanwhile, and the page goes on where it was told to."""
    page = open_page(application)
    wait_until_live(page)

    page.get_by_role("button", name="Pause").click()
    assert page.locator("#status").inner_text() == "paused"
    still = picture(page), page.locator("#tiles").inner_text()
    page.wait_for_timeout(700)
    assert (picture(page), page.locator("#tiles").inner_text()) == still
    assert page.locator("#pause").get_attribute("aria-pressed") == "true"

    page.keyboard.press("p")
    wait_until_live(page)
    page.wait_for_timeout(100)
    assert picture(page) != still[0]


def test_it_works_by_keyboard(application: str, open_page: OpenPage) -> None:
    """The button is the first stop, its focus can be seen, Enter and Space press it."""
    page = open_page(application)
    wait_until_live(page)

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "pause"
    assert page.locator("#pause").evaluate("each => getComputedStyle(each).outlineWidth") == "3px"
    page.keyboard.press("Enter")
    page.wait_for_selector("#status[data-state=paused]")
    page.keyboard.press("Space")
    wait_until_live(page)


def test_it_can_be_read_aloud(application: str, open_page: OpenPage) -> None:
    """Everything drawn has words; headings and regions are named."""
    page = open_page(application)
    wait_until_live(page)

    label = page.locator(".dial canvas").first.get_attribute("aria-label")
    assert label.startswith("Dial of level 0: 1 ms a bucket, 256 ms a turn; ")
    unnamed = page.locator("[role=img]:not([aria-label]):not([aria-labelledby])")
    assert unnamed.count() == 0
    for name in ("Wheels", "Timer", "Purgatory long-poll", "Purgatory acks"):
        assert page.get_by_role("region", name=name, exact=True).count() == 1
    assert page.get_by_role("status").inner_text() == "live"


def test_it_survives_a_restart_of_the_server(open_page: OpenPage) -> None:
    """It says that it lost the server, comes back by itself, and begins its counts anew."""
    port = free_port()
    with busy_application(port) as url:
        page = open_page(url, may_lose_server=True)
        wait_until_live(page)
        page.wait_for_timeout(1_000)

    page.wait_for_selector("#status[data-state=reconnecting]")
    with busy_application(port, pending=50):
        wait_until_live(page)
        page.wait_for_timeout(600)
        assert int(tile(page, "Pending")) < 100
        assert not any(text.startswith("-") for text in page.locator("dd").all_inner_texts())


def test_without_a_viewer_nothing_is_sampled(server: str, open_page: OpenPage) -> None:
    """A page that is not in front, as one that was closed, asks for nothing."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)

    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    requests: list[str] = []

    def note(request: Any) -> None:
        requests.append(request.url)

    page.on("request", note)
    page.wait_for_timeout(1_500)

    assert requests == []


@pytest.mark.parametrize("width", [320, 390, 768, 1240, 2000])
def test_nothing_is_wider_than_the_screen(
    application: str, open_page: OpenPage, width: int
) -> None:
    """From a small phone to a large screen nothing has to be scrolled sideways."""
    page = open_page(application, viewport={"width": width, "height": 800})
    wait_until_live(page)
    page.wait_for_timeout(300)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def contrast(page: Any, selector: str) -> float:
    """The contrast ratio of a text with its panel, as WCAG has it."""
    ratio: float = page.locator(selector).first.evaluate(
        """text => {
          const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
          const light = (colour) => {
            const [r, g, b] = channels(colour).map((each) => {
              const part = each / 255;
              return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          let back = text;
          const behind = () => getComputedStyle(back).backgroundColor;
          while (behind().match(/, 0\\)/)) back = back.parentElement;
          const [a, b] = [light(getComputedStyle(text).color), light(behind())];
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }"""
    )
    return ratio


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(
    application: str, open_page: OpenPage, scheme: str
) -> None:
    """Every kind of text has a contrast of 4.5 and more."""
    page = open_page(application, color_scheme=scheme)
    wait_until_live(page)
    page.wait_for_selector("tbody tr")
    page.keyboard.press("p")  # or the rows may go while they are looked at

    for selector in (
        "h1",
        "#about",
        "#status",
        "#pause",
        ".tile dt",
        ".tile dd",
        ".note",
        "th",
        "td",
        ".bin span",
        ".counts dt",
        ".counts .good dd",
        ".counts .bad dd",
        "h3",
        "footer p",
    ):
        assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_of_the_documentation(open_page: OpenPage, scheme: str) -> None:
    """Made here, so that they show what is; small."""
    with busy_application(pending=1_200) as url:
        wide = open_page(url, color_scheme=scheme, viewport={"width": 1100, "height": 850})
        wait_until_live(wide)
        wide.wait_for_timeout(12_000)
        IMAGES.mkdir(exist_ok=True)
        wheels, room = IMAGES / f"dashboard-{scheme}.png", IMAGES / f"purgatory-{scheme}.png"
        wide.screenshot(path=wheels)
        wide.locator(".purgatory").first.screenshot(path=room)
        wide.close()

    for image in (wheels, room):
        assert 20_000 < image.stat().st_size < MOST_IMAGE_BYTES
