"""The dashboard in a real browser: it opens, moves, and shows the right values."""

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks._ports import free_port

from .conftest import ROOT, OpenPage, axe_violations, busy_application, serve

pytestmark = [pytest.mark.browser, pytest.mark.realtime]

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 60_000
MOST_IMAGE_BYTES = 250_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of `aiowheel serve --dashboard`."""
    with serve() as url:
        yield url


def wait_until_live(page: Any) -> None:
    """Return when samples arrive."""
    page.wait_for_selector("#status[data-state=live]")
    page.wait_for_selector(".dial canvas")


def tile(page: Any, name: str) -> str:
    """Return the number under *name*."""
    text: str = page.locator(".tile", has_text=name).locator("dd").inner_text()
    return text


def picture(page: Any, index: int = 0) -> str:
    """Return the pixels of the dial."""
    shown: str = page.locator(".dial canvas").nth(index).evaluate("each => each.toDataURL()")
    return shown


def test_the_dashboard_opens_and_moves(application: str, open_page: OpenPage) -> None:
    """Every level has its dial; hands move between the samples; the numbers are there."""
    page = open_page(application)
    wait_until_live(page)

    assert page.locator(".dial").count() >= 2
    assert re.search(r"process \d+ on .* · CPython 3", page.locator("#about").inner_text())
    first = picture(page)
    page.wait_for_timeout(120)
    assert picture(page) != first
    assert int(tile(page, "Pending").replace(",", "")) > 300
    page.wait_for_selector("#lateness i:not(.none)", state="attached")
    assert page.locator("#purgatories .purgatory").count() == 2


def test_the_dashboard_loads_little_and_only_from_its_host(
    application: str, open_page: OpenPage
) -> None:
    """The total is under 60 kB, from one host."""
    page = open_page("about:blank")
    fetched: dict[str, int] = {}

    def note(response: Any) -> None:
        if not response.url.endswith("/events"):
            fetched[response.url] = len(response.body())

    page.on("response", note)
    page.goto(application)
    wait_until_live(page)

    assert len(fetched) >= 12
    assert all(url.startswith(application) for url in fetched)
    assert sum(fetched.values()) < MOST_BYTES


def test_a_fired_operation_is_shown(server: str, open_page: OpenPage) -> None:
    """The page shows a pending poll with its reason, and after its timeout that it expired."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)

    httpx.post(f"{server}/topics/weather", content="sun")
    httpx.get(f"{server}/topics/weather?since=1&timeout=1.2")

    ended = page.locator(".ended li.expired", has_text="weather")
    ended.wait_for()
    assert re.search(r"timed out\s+after [1-9][.\d]* s", ended.inner_text())


def test_a_pending_operation_shows_its_condition(server: str, open_page: OpenPage) -> None:
    """The page shows key, value and threshold; the row goes when the poll is answered."""
    page = open_page(f"{server}/dashboard")
    wait_until_live(page)
    httpx.post(f"{server}/topics/tides", content="low")
    port = int(server.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as poll:
        poll.sendall(b"GET /topics/tides?since=1&timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        row = page.locator(".oldest tr", has_text="tides")
        row.wait_for()
        assert "tides to reach 2, now at 1" in row.inner_text()
        assert page.locator(".keys li", has_text="tides").count() == 1
        assert row.locator("td").nth(1).inner_text() == "1"

        httpx.post(f"{server}/topics/tides", content="high")
        page.locator(".ended li.completed", has_text="tides").wait_for()
        row.wait_for(state="detached")


def test_keys_that_look_alike_have_a_row_each(server: str, open_page: OpenPage) -> None:
    """Long keys are shortened; any number of samples gives as many rows as keys."""
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


def test_a_key_can_be_found_and_its_operations_seen(application: str, open_page: OpenPage) -> None:
    """A part of its text finds the key; every operation shows its condition."""
    page = open_page(application)
    wait_until_live(page)
    first = page.locator(".purgatory").first

    first.get_by_label("Find keys").fill("PRICES/00")
    page.keyboard.press("Enter")
    first.locator(".found li").nth(9).wait_for()
    assert first.locator(".details [role=status]").inner_text() == "10 keys"
    first.locator(".found button", has_text="prices/001").click()
    first.locator(".one h3", has_text="prices/001").wait_for()
    operation = first.locator(".operations li").first
    operation.wait_for()
    operation.locator("summary").click()
    facts = operation.inner_text()
    assert "prices/001 to reach" in facts
    assert "ThresholdOperation pending" in facts

    first.get_by_role("button", name="Close").click()
    assert not first.locator(".one").is_visible()
    first.locator(".keys button").first.click()
    first.locator(".one h3").wait_for()


def test_small_charts_have_a_scale_and_show_the_value_under_the_pointer(
    application: str, open_page: OpenPage
) -> None:
    """The scale ends at the greatest value; the pointer shows the value of its second."""
    page = open_page(application)
    wait_until_live(page)
    chart = page.locator(".tile", has_text="Pending").locator(".chart")
    page.wait_for_function(
        "() => document.querySelector('.tile .chart .top').textContent.length > 0"
    )
    assert 300 < int(chart.locator(".top").inner_text().replace(",", "")) < 600

    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 2, "y": 20})
    told = chart.locator(".hover")
    told.wait_for()
    assert re.fullmatch(r"(now|\d+ s ago): \d+", told.inner_text())
    page.mouse.move(0, 0)
    told.wait_for(state="hidden")
    assert "Pending, last 5 minutes: from" in chart.locator("canvas").get_attribute("aria-label")


def test_percentiles_are_shown_over_time(application: str, open_page: OpenPage) -> None:
    """They show the times to completion; a purgatory without completions has no chart."""
    page = open_page(application)
    wait_until_live(page)
    polls, acks = page.locator(".purgatory").nth(0), page.locator(".purgatory").nth(1)

    polls.locator(".legend b", has_text=re.compile(r"\d m?s")).nth(2).wait_for()
    assert not acks.locator(".legend").is_visible()


def test_durable_timers_are_shown(application: str, open_page: OpenPage) -> None:
    """The page shows them by hour, with dead and firing ones and the owners of partitions."""
    page = open_page(application)
    wait_until_live(page)
    box = page.get_by_role("region", name="Durable timers reminders", exact=True)

    box.locator(".hours .bin i:not(.none)").nth(5).wait_for(state="attached")
    assert box.locator(".hours .bin").count() == 24
    owner = box.locator(".owners tbody tr")
    assert owner.count() == 1
    assert re.fullmatch(r"\S+:\d+:\w+, this process\s+4", owner.inner_text())
    fired = box.locator(".counts div", has_text="fired per second").locator("dd:not(.zero)")
    fired.wait_for()
    dead = box.locator(".counts div", has_text="dead").locator("dd:not(.zero)")
    dead.wait_for()
    box.locator(".legend b", has_text=re.compile(r"\d (µ|m)?s")).first.wait_for()


def test_zeros_are_grey(application: str, open_page: OpenPage) -> None:
    """Only zeros are grey."""
    page = open_page(application)
    wait_until_live(page)
    counts = page.locator(".purgatory").nth(1).locator(".counts div")

    def colour(name: str) -> str:
        got: str = (
            counts.filter(has_text=name)
            .locator("dd")
            .evaluate("each => getComputedStyle(each).color")
        )
        return got

    assert colour("failed") == colour("completed per second") != colour("pending")


@pytest.mark.posix
def test_with_nothing_pending_the_page_shows_a_command(open_page: OpenPage) -> None:
    """The page shows a shell command, which works unchanged."""
    with serve() as url:
        page = open_page(f"{url}/dashboard/")
        wait_until_live(page)
        code = page.locator("#idle code")
        code.wait_for()
        line = code.inner_text()
        assert url in line

        # The command as a user pastes it, without its last part of up to half a minute.
        shell = subprocess.Popen(["bash", "-c", line], start_new_session=True)
        try:
            code.wait_for(state="hidden")
            page.wait_for_function("() => document.querySelector('.tile dd').textContent !== '0'")
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(30)
        page.close()  # otherwise it reports the end of the server as an error


def test_a_reload_starts_with_the_last_minutes(application: str, open_page: OpenPage) -> None:
    """The server keeps them."""
    page = open_page(application)
    wait_until_live(page)
    page.wait_for_timeout(3_000)

    page.reload()
    wait_until_live(page)

    chart = page.locator(".tile", has_text="Wake-ups").locator(".chart")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * (1 - 2 / 60), "y": 20})
    told = chart.locator(".hover")
    told.wait_for()
    assert re.fullmatch(r"\d+ s ago: [\d,]+", told.inner_text())


def test_all_workers_are_shown_or_the_chosen_one(open_page: OpenPage, tmp_path: Path) -> None:
    """A table shows all workers; the dials show the chosen one, also after a reload."""
    store = f"sqlite:///{tmp_path}/topics.db"
    with serve("--workers", "2", "--store", store) as url:
        page = open_page(f"{url}/dashboard/", viewport={"width": 390, "height": 800})
        processes = page.locator("#processes tbody tr")
        processes.nth(1).wait_for()
        assert page.locator("#processes h2").inner_text() == "2 processes"
        assert page.locator("#about").inner_text() == "all 2 processes of this host"
        assert page.locator(".dial").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

        button = processes.first.locator("button")
        number = button.inner_text()
        button.click()
        page.wait_for_selector(".dial canvas")
        assert f"process {number} on" in page.locator("#about").inner_text()
        assert button.get_attribute("aria-pressed") == "true"
        page.reload()
        page.wait_for_selector(".dial canvas")
        assert f"process {number} on" in page.locator("#about").inner_text()

        page.get_by_role("button", name="All").click()
        page.locator(".dial").first.wait_for(state="detached")
        page.close()  # while the server runs: the page would report a lost connection


@pytest.mark.posix
def test_a_process_that_does_not_answer_is_marked(open_page: OpenPage, short_path: Path) -> None:
    """Its row has no numbers and cannot be chosen; the head counts the processes that answer."""
    folder = short_path / "folder"
    folder.mkdir(mode=0o700)
    with (
        socket.socket(socket.AF_UNIX) as mute,
        busy_application(folder=str(folder)) as url,
    ):
        mute.bind(str(folder / "7-mute.sock"))
        mute.listen()
        page = open_page(url, viewport={"width": 390, "height": 800})
        row = page.locator("#processes tr.silent")
        row.wait_for()

        assert re.fullmatch(r"7\s+no answer for \d s\s+-\s+-\s+-(\s+-)?", row.inner_text().strip())
        assert row.locator("button").is_disabled()
        assert page.locator("#about").inner_text() == "1 of 2 processes of this host"
        assert int(tile(page, "Pending").replace(",", "")) > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert contrast(page, "#processes tr.silent td:nth-child(2)") >= 4.5
        page.close()


@pytest.mark.posix
def test_after_the_end_of_the_chosen_process_all_are_shown(
    open_page: OpenPage, tmp_path: Path
) -> None:
    """The page continues with the remaining processes."""
    store = f"sqlite:///{tmp_path}/topics.db"
    with serve("--workers", "2", "--store", store) as url:
        page = open_page(f"{url}/dashboard/", may_lose_server=True)
        button = page.locator("#processes tbody button").first
        button.wait_for()
        number = int(button.inner_text())
        button.click()
        page.wait_for_selector(".dial canvas")
        os.kill(number, signal.SIGKILL)

        page.locator("#processes .all[aria-pressed=true]").wait_for()
        page.locator("#processes tbody button", has_text=str(number)).wait_for(state="detached")
        page.locator("#processes h2", has_text="2 processes").wait_for()


def test_pause_stops_the_page_and_the_sampling(application: str, open_page: OpenPage) -> None:
    """Button and key stop them; the stream closes meanwhile, and the page continues later."""
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


def test_the_dashboard_works_by_keyboard(application: str, open_page: OpenPage) -> None:
    """The button is the first tab stop, its focus is visible, Enter and Space press it."""
    page = open_page(application)
    wait_until_live(page)

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "pause"
    assert page.locator("#pause").evaluate("each => getComputedStyle(each).outlineWidth") == "3px"
    page.keyboard.press("Enter")
    page.wait_for_selector("#status[data-state=paused]")
    page.keyboard.press("Space")
    wait_until_live(page)


def test_the_dashboard_works_with_a_screen_reader(application: str, open_page: OpenPage) -> None:
    """Every drawing has a text; headings and regions have names."""
    page = open_page(application)
    wait_until_live(page)

    label = page.locator(".dial canvas").first.get_attribute("aria-label")
    assert label.startswith("Dial of level 0: 1 ms per bucket, 256 ms per turn; ")
    unnamed = page.locator("[role=img]:not([aria-label]):not([aria-labelledby])")
    assert unnamed.count() == 0
    for name in ("Wheels", "Timer", "Purgatory long-poll", "Purgatory acks"):
        assert page.get_by_role("region", name=name, exact=True).count() == 1
    assert page.locator("#status[role=status]").inner_text() == "live"


def test_the_dashboard_survives_a_restart_of_the_server(open_page: OpenPage) -> None:
    """The page reports the lost server, reconnects by itself, and restarts its counts."""
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
    """A page in the background requests nothing, like a closed one."""
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
    """No horizontal scrolling is needed from a small phone to a large screen."""
    page = open_page(application, viewport={"width": width, "height": 800})
    wait_until_live(page)
    page.wait_for_timeout(300)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def contrast(page: Any, selector: str) -> float:
    """Return the contrast ratio of a text with its panel, as WCAG defines it."""
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
    """Every kind of text has a contrast of at least 4.5."""
    page = open_page(application, color_scheme=scheme)
    wait_until_live(page)
    page.wait_for_selector(".oldest tbody tr")
    page.keyboard.press("p")  # otherwise the rows may disappear during the check

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


@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(
    application: str, open_page: OpenPage, scheme: str, width: int
) -> None:
    """Names, headings, roles and contrast of a full page."""
    page = open_page(
        application,
        color_scheme=scheme,
        reduced_motion="reduce",  # a row that fades in has less contrast for 0.4 s
        bypass_csp=True,
        viewport={"width": width, "height": 900},
    )
    wait_until_live(page)
    page.wait_for_selector(".oldest tbody tr")
    page.keyboard.press("p")  # otherwise the rows may disappear during the check

    assert axe_violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_of_the_documentation(open_page: OpenPage, scheme: str) -> None:
    """They are created here, so that they show the present page; the files are small."""
    with busy_application(pending=1_200) as url:
        wide = open_page(url, color_scheme=scheme, viewport={"width": 1100, "height": 850})
        wait_until_live(wide)
        wide.wait_for_timeout(12_000)
        IMAGES.mkdir(exist_ok=True)
        wheels, room = IMAGES / f"dashboard-{scheme}.png", IMAGES / f"purgatory-{scheme}.png"
        wide.screenshot(path=wheels, timeout=120_000)
        wide.locator(".purgatory").first.screenshot(path=room, timeout=120_000)
        wide.close()

    for image in (wheels, room):
        assert 20_000 < image.stat().st_size < MOST_IMAGE_BYTES
