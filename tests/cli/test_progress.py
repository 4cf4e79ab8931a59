"""The progress bar of a command, which only a terminal shows."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from aiowheel._progress import Progress

pytestmark = pytest.mark.one_build


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rich treat stderr as a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("on_a_terminal")
def test_items_are_counted_as_they_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar is full after the last item."""
    with Progress() as progress:
        progress.show("reading", 4, 4)
        assert list(progress.each("ab", "replaying", 2)) == ["a", "b"]

    shown = capsys.readouterr().err
    assert "replaying" in shown
    assert "100%" in shown


@pytest.mark.usefixtures("on_a_terminal")
def test_a_bar_shows_work_share_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup in a name is shown unchanged; after one update there is no speed."""
    with Progress() as progress:
        progress.show("[red]watching")
        progress.show("[red]reading", 1, 4)

    shown = capsys.readouterr().err
    assert "[red]reading" in shown
    assert "25%" in shown
    assert "-:--:--" in shown


@pytest.mark.usefixtures("on_a_terminal")
def test_the_tasks_of_spark_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The tasks of all running stages count; a stage that has just ended is left out."""
    asked = threading.Event()
    stages = {1: SimpleNamespace(numCompletedTasks=3, numTasks=4), 2: None}

    def active() -> list[int]:
        asked.set()
        return list(stages)

    tracker = SimpleNamespace(getActiveStageIds=active, getStageInfo=stages.get)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    with Progress() as progress, progress.tasks_of(spark, "report"):
        assert asked.wait(30)

    shown = capsys.readouterr().err
    assert "report" in shown
    assert "75%" in shown


@pytest.mark.usefixtures("on_a_terminal")
def test_a_session_that_ends_early_fails_nothing() -> None:
    """The block continues to its end."""
    asked = threading.Event()

    def gone() -> None:
        asked.set()
        raise ConnectionError

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=gone))

    with Progress() as progress, progress.tasks_of(spark, "report"):
        assert asked.wait(30)


def test_no_bar_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Items are not counted, and Spark's status is not read."""
    items = [1, 2]

    with Progress() as progress:
        progress.show("reading", 1, 4)
        assert progress.each(items, "replaying", 2) is items
        with progress.tasks_of(object(), "report"):  # type: ignore[arg-type]
            pass

    assert capsys.readouterr() == ("", "")
