"""The dashboards of several processes, shown as one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import shutil
import socket
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from aiowheel import ManualTimer, Purgatory
from aiowheel._siblings import Siblings
from aiowheel.dashboard import Dashboard
from aiowheel.dashboard import _processes as processes_module
from aiowheel.dashboard._processes import Processes, merged
from aiowheel.dashboard._sample import Sampler, named
from aiowheel.errors import BadInputError

from .conftest import Unmet
from .test_app import Exchange, asked, scope


def has_points(least: int, snapshot: dict[str, Any]) -> bool:
    """Return whether a snapshot has points of at least that many seconds."""
    return len(snapshot["points"]) >= least


pytestmark = [
    pytest.mark.one_build,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="the system has no Unix sockets"),
]


def snapshot_of(name: str, waiting: dict[str, int]) -> Any:
    """Return a snapshot of a purgatory with that many operations per key."""
    timer = ManualTimer()
    purgatory = Purgatory(name, timer=timer)
    for key, count in waiting.items():
        for _ in range(count):
            purgatory.try_complete_else_watch(Unmet(10), [key])
        timer.advance(1)
    return Sampler(timer, named([purgatory]), {}, "run").snapshot()


def test_purgatories_of_one_name_are_added() -> None:
    """Keys with the same text are added, hottest first; each keeps its oldest operation."""
    total = merged([snapshot_of("p", {"a": 1, "b": 3}), snapshot_of("p", {"c": 9, "b": 1, "d": 1})])

    (purgatory,) = total["purgatories"]
    assert (total["pending"], purgatory["pending"], purgatory["watched"]) == (15, 15, 15)
    assert purgatory["keys"] == [("c", 9), ("b", 4), ("a", 1), ("d", 1)]
    oldest = [(each["key"], each["waiters"], each["age"]) for each in purgatory["oldest"]]
    assert oldest == [("c", 9, 3.0), ("a", 1, 2.0), ("b", 4, 2.0), ("d", 1, 1.0)]
    assert total["levels"] == []


def test_purgatories_of_different_names_stay_apart() -> None:
    """Their order is unchanged."""
    total = merged([snapshot_of("p", {"a": 1}), snapshot_of("q", {"a": 2})])

    assert [(each["name"], each["pending"]) for each in total["purgatories"]] == [
        ("p", 1),
        ("q", 2),
    ]


class Folder:
    """The siblings `10-a`, which answers always, `11-b`, until `is_blocked`, and `12-c`, never."""

    def __init__(self) -> None:
        self.is_blocked = asyncio.Event()

    def names(self) -> list[str]:
        """Return the names."""
        return ["10-a", "11-b", "12-c"]

    async def ask(self, name: str, question: Any) -> AsyncGenerator[Any]:
        """Yield a snapshot four times a second."""
        while name == "10-a" or (name == "11-b" and not self.is_blocked.is_set()):
            yield snapshot_of("p", {name: 2})
            await asyncio.sleep(0.25)
        await asyncio.Event().wait()


@pytest.mark.virtual_time
async def test_a_silent_process_is_marked_and_not_counted() -> None:
    """A process whose loop is blocked is marked after two seconds, also if it never answered."""
    folder = Folder()
    processes = Processes(cast("Siblings", folder))

    def seen(process: str = "") -> Any:
        snapshot = processes.snapshot(process)
        rows = [(each["id"], each.get("pending"), each["silent"]) for each in snapshot["processes"]]
        return snapshot["pending"], rows

    await processes.begin()
    pid = snapshot_of("p", {})["process"]["id"]
    assert seen() == (4, [(pid, 2, None), (pid, 2, None)])

    folder.is_blocked.set()
    await asyncio.sleep(12)
    assert seen() == (2, [(pid, 2, None), ("11", None, 12), ("12", None, 13)])
    assert seen("11-b")[0] == 2  # the last that it said
    processes.end()


@pytest.mark.virtual_time
async def test_a_process_that_was_blocked_itself_marks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It received nothing from itself either."""
    processes = Processes(cast("Siblings", Folder()))
    await processes.begin()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", partial(float, loop.time() + 60))
    assert processes.snapshot("")["pending"] == 4
    processes.end()


@contextlib.asynccontextmanager
async def watching(
    dashboard: Dashboard, process: str = ""
) -> AsyncGenerator[Callable[[Callable[[Any], bool]], Any]]:
    """Open a viewer; call it with a condition to wait for a snapshot that meets it."""
    exchange = Exchange()
    request = scope("/events", query=f"process={process}")
    stream = asyncio.create_task(dashboard(request, exchange.receive, exchange.send))

    async def wait_for(condition: Callable[[Any], bool]) -> Any:
        while True:
            parts = [part for part in exchange.body.split(b"\n\n") if part.startswith(b"data: ")]
            snapshots = [json.loads(part.removeprefix(b"data: ")) for part in parts[-1:]]
            if snapshots and condition(snapshots[0]):
                return snapshots[0]
            await asyncio.sleep(0.02)

    yield wait_for
    exchange.left.set()
    await stream


@pytest.mark.realtime
async def test_each_dashboard_shows_all_or_one(short_path: Path) -> None:
    """An ended process disappears, and its points stay in the history."""
    timers = [ManualTimer() for _ in range(2)]
    dashboards = [Dashboard(timer, folder=short_path / "folder") for timer in timers]
    for timer in timers:
        timer.call_later(0.1, int)
    both: Any = None
    for dashboard in dashboards:
        async with watching(dashboard) as together:
            both = await together(lambda snapshot: len(snapshot["processes"]) == 2)
            assert (both["pending"], both["levels"]) == (2, [])

    name: str = both["processes"][0]["name"]
    async with watching(dashboards[0], name) as alone:
        one = await alone(lambda snapshot: "pending" in snapshot)
        assert (one["pending"], len(one["levels"]), one["process"]["run"]) == (
            1,
            1,
            name.partition("-")[2],
        )
    async with watching(dashboards[0]) as all_of_them, watching(dashboards[0], "nobody") as gone:
        assert (await gone(lambda _: True))["gone"] == "nobody"
        await all_of_them(lambda snapshot: len(snapshot["processes"]) == 2)
        dashboards[1].close()
        dashboards[1].close()
        left = await all_of_them(lambda snapshot: len(snapshot["processes"]) == 1)
        assert (left["pending"], len(left["levels"])) == (1, 1)
    dashboards[0].close()
    async with watching(dashboards[0]):
        pass

    assert list((short_path / "folder").iterdir()) == []


@pytest.mark.realtime
async def test_a_process_of_another_version_is_not_shown(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other processes are, and the searches for new processes report no error."""
    monkeypatch.setattr(processes_module, "_SEARCH", 0.01)
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += bool(await reader.readline())
        writer.write(b'{"pending": 1}\n')
        writer.close()

    dashboard = Dashboard(ManualTimer(), folder=short_path / "folder")
    runs: set[str] = set()
    async with (
        await asyncio.start_unix_server(answer, short_path / "folder" / "old.sock"),
        watching(dashboard) as together,
    ):
        for least in (1, 2):  # the points of two seconds: many searches
            snapshot = await together(partial(has_points, least))
            runs |= {each["run"] for each in snapshot["processes"]}
    dashboard.close()
    gc.collect()

    assert (reports, asked, len(runs)) == ([], 1, 1)


@pytest.mark.realtime
@pytest.mark.parametrize("taken", [False, True], ids=["removed", "a-file"])
async def test_a_folder_that_is_lost_leaves_the_own_process(
    short_path: Path,
    caplog: pytest.LogCaptureFixture,
    taken: bool,  # noqa: FBT001 - a parameter
) -> None:
    """The stream continues; one log event reports the loss of the other processes."""
    folder = short_path / "folder"
    timer = ManualTimer()
    timer.call_later(0.1, int)
    dashboard = Dashboard(timer, folder=folder)
    shutil.rmtree(folder)
    if taken:
        folder.write_text("")
    for _ in range(2):
        async with watching(dashboard) as together:
            snapshot = await together(lambda _: True)
            assert (snapshot["pending"], len(snapshot["levels"])) == (1, 1)
    dashboard.close()

    assert [record.getMessage() for record in caplog.records] == [
        f"aiowheel.siblings_lost folder={str(folder)!r}"
    ]


@pytest.mark.realtime
def test_a_dashboard_that_opens_late_shows_at_least_its_own_process(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder became unusable before its first request; one log event reports that."""
    folder = short_path / "folder"
    dashboard = Dashboard(ManualTimer(), folder=folder)
    folder.chmod(0o755)

    async def ask() -> list[int]:
        async with watching(dashboard) as together:
            assert (await together(lambda _: True))["pending"] == 0
        statuses = [(await asked(dashboard, scope(path))).status for path in ("/", "/page.js")]
        dashboard.close()
        return statuses

    assert asyncio.run(ask()) == [200, 200]
    (record,) = caplog.records
    assert "aiowheel.dashboard_alone error='folder must be of this user" in record.getMessage()


@pytest.mark.realtime
async def test_a_viewer_who_leaves_at_once_leaves_no_reading(short_path: Path) -> None:
    """The viewer disconnects before the processes have answered."""
    dashboard = Dashboard(ManualTimer(), folder=short_path / "folder")

    def is_reading() -> bool:
        return dashboard._processes is not None and dashboard._processes._searching is not None

    async with asyncio.timeout(30):
        async with watching(dashboard):
            while not is_reading():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
        while is_reading():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
    dashboard.close()


@pytest.mark.realtime
async def test_questions_reach_all_processes(short_path: Path) -> None:
    """The waiters of a key are added; a purgatory may exist in one process only."""
    timers = [ManualTimer() for _ in range(2)]
    rooms = [
        [Purgatory("p", timer=timers[0])],
        [Purgatory("p", timer=timers[1]), Purgatory("q", timer=timers[1])],
    ]
    dashboards = [
        Dashboard(timer, purgatories, folder=short_path / "folder")
        for timer, purgatories in zip(timers, rooms, strict=True)
    ]
    for purgatories in rooms:
        purgatories[0].try_complete_else_watch(Unmet(9), ["x"])
    found = [
        await asked(dashboards[0], scope("/operations", query=f"purgatory={name}&text=x"))
        for name in "pqr"
    ]
    for dashboard in dashboards:
        dashboard.close()

    assert [each.status for each in found] == [200, 200, 404]
    assert [json.loads(each.body)["waiters"] for each in found[:2]] == [2, 0]


async def test_a_folder_of_others_is_refused_at_once(short_path: Path) -> None:
    """The constructor raises, not the first request."""
    short_path.joinpath("f").mkdir(mode=0o755)
    with pytest.raises(BadInputError, match="closed to others"):
        Dashboard(ManualTimer(), folder=short_path / "f")


def test_an_unusable_folder_is_refused_at_once_without_a_loop(short_path: Path) -> None:
    """The path may also be a file."""
    short_path.joinpath("f").mkdir(mode=0o755)
    short_path.joinpath("file").write_text("")
    for name, text in (("f", "closed to others"), ("file", "can be made")):
        with pytest.raises(BadInputError, match=text):
            Dashboard(ManualTimer(), folder=short_path / name)
