"""One dashboard for several processes of a host. Rank 4.

While there is a viewer, this process reads the snapshots of all processes, including its own, and
merges them: it adds counts, merges lists, and leaves out the levels of the wheels. A process that
sends no snapshots, because its event loop is blocked or it is stopped, is marked and not merged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from aiowheel._siblings import Siblings
from aiowheel.dashboard._durable import merged_durable
from aiowheel.dashboard._history import POINTS, SECONDS, summed
from aiowheel.dashboard._rotation import SHOWN
from aiowheel.dashboard._waiting import Json
from aiowheel.errors import TimerClosedError

_SEARCH: Final = 1.0  # seconds between two searches for new processes
_PATIENCE: Final = 1.0  # seconds for which the first snapshot waits for all processes
_LONGEST_SILENCE: Final = 2.0  # seconds without a snapshot after which a process is marked
_SUMS: Final = ("pending", "scheduled", "fired", "errors")  # numbers that are added


class Processes:
    """Reads and merges the snapshots of all processes of a folder.

    Args:
        siblings: The processes of the folder, including this one. Each answers `{"ask": "looks"}`
            with a stream of snapshots, the first of which has all points of the history.
    """

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings
        self._snapshots: dict[str, Json] = {}  # the last snapshot of each process
        self._heard: dict[str, float] = {}  # when it came, or when the reading began
        self._points: dict[str, dict[int, Json]] = {}  # by process and second; also of dead ones
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()  # set when a snapshot has arrived, or a process has ended
        self._searching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start reading; return when all processes have answered, or after a second."""
        if self._searching is None:
            self._searching = asyncio.create_task(self._search(), name="aiowheel dashboard")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not self._snapshots or self._snapshots.keys() < self._reading.keys():
                    self._changed.clear()
                    await self._changed.wait()

    def end(self) -> None:
        """Stop reading. Idempotent."""
        searching, self._searching = self._searching, None
        if searching is not None:
            searching.cancel()
        for task in self._reading.values():
            task.cancel()
        self._reading.clear()
        self._snapshots.clear()
        self._heard.clear()
        self._points.clear()

    def snapshot(self, process: str) -> Json:
        """Return the last snapshot of *process*, or of all that answer if it is "".

        Raises:
            TimerClosedError: No process answers.
        """
        silent = self._silent()
        answering = [each for name, each in sorted(self._snapshots.items()) if name not in silent]
        if not answering:
            raise TimerClosedError("no process answers")
        rows = {name: _as_row(name, each) for name, each in self._snapshots.items()}
        rows |= {name: _as_silent_row(name, seconds) for name, seconds in silent.items()}
        if process:
            shown = self._snapshots.get(process, {"gone": process})
        else:
            shown = answering[0] if len(rows) == 1 else merged(answering)
        processes = [rows[name] for name in sorted(rows)]
        return {**shown, "points": self.points(process, POINTS), "processes": processes}

    def points(self, process: str, count: int = SECONDS) -> list[Json]:
        """Return the last points of *process*, or of all processes if it is "", oldest first."""
        by_second: dict[int, list[Json]] = {}
        for name, points in self._points.items():
            if process in {"", name}:
                for second, point in points.items():
                    by_second.setdefault(second, []).append(point)
        return [summed(by_second[second]) for second in sorted(by_second)[-count:]]

    def _silent(self) -> dict[str, int]:
        """Return how many seconds each marked process has been silent.

        Silence is measured to the last snapshot of any process, not to the present: while this
        process was blocked itself, it received nothing.
        """
        newest = max(self._heard.values(), default=0.0)
        return {
            name: round(newest - heard)
            for name, heard in self._heard.items()
            if newest - heard > _LONGEST_SILENCE
        }

    async def _search(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for name in self._siblings.names():
                if name not in self._reading:
                    self._heard[name] = loop.time()
                    self._reading[name] = asyncio.create_task(self._read(name))
            await asyncio.sleep(_SEARCH)

    async def _read(self, name: str) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                async with contextlib.aclosing(
                    self._siblings.ask(name, {"ask": "looks"})
                ) as snapshots:
                    async for snapshot in snapshots:
                        self._note(name, snapshot)
        finally:
            if self._reading.get(name) is asyncio.current_task():
                del self._reading[name]
                self._snapshots.pop(name, None)
                del self._heard[name]
                self._changed.set()

    def _note(self, name: str, snapshot: Json) -> None:
        self._snapshots[name] = snapshot
        self._heard[name] = asyncio.get_running_loop().time()
        self._changed.set()
        points = self._points.setdefault(name, {})
        for point in snapshot["points"]:
            points[point["second"]] = point
        newest = max(points, default=0)
        for other, theirs in list(self._points.items()):
            for second in [each for each in theirs if each <= newest - SECONDS]:
                del theirs[second]
            if not theirs and other not in self._snapshots:
                del self._points[other]


def merged(snapshots: Sequence[Json]) -> Json:
    """Merge the snapshots of several processes into one."""
    return {
        "process": {"run": "+".join(snapshot["process"]["run"] for snapshot in snapshots)},
        "tick": snapshots[0]["tick"],
        "next": min(
            (snapshot["next"] for snapshot in snapshots if snapshot["next"] is not None),
            default=None,
        ),
        "levels": [],
        **{name: sum(snapshot[name] for snapshot in snapshots) for name in _SUMS},
        "latest": max(snapshot["latest"] for snapshot in snapshots),
        "purgatories": [_merged_purgatories(each) for each in _by_name(snapshots, "purgatories")],
        "durable": [merged_durable(each) for each in _by_name(snapshots, "durable")],
    }


def _by_name(snapshots: Sequence[Json], kind: str) -> list[list[Json]]:
    found: dict[str, list[Json]] = {}
    for snapshot in snapshots:
        for each in snapshot[kind]:
            found.setdefault(each["name"], []).append(each)
    return list(found.values())


def _merged_purgatories(alike: Sequence[Json]) -> Json:
    keys: dict[str, int] = {}
    oldest: dict[str, Json] = {}
    for purgatory in alike:
        for key, waiters in purgatory["keys"]:
            keys[key] = keys.get(key, 0) + waiters
        for group in purgatory["oldest"]:
            known = oldest.get(group["key"])
            first = group if known is None or group["age"] > known["age"] else known
            waiters = group["waiters"] + (0 if known is None else known["waiters"])
            oldest[group["key"]] = {**first, "waiters": waiters}
    return {
        "name": alike[0]["name"],
        **{
            name: sum(each[name] for each in alike)
            for name in ("pending", "watched", "checks", "failed")
        },
        "keys": sorted(keys.items(), key=lambda item: -item[1])[:SHOWN],
        "oldest": sorted(oldest.values(), key=lambda each: -float(each["age"]))[:SHOWN],
        "ended": sorted(
            (ended for each in alike for ended in each["ended"]), key=lambda each: float(each["at"])
        )[-SHOWN:],
    }


def _as_row(name: str, snapshot: Json) -> Json:
    """Return the row of one process in the table of processes."""
    last: Json = snapshot["points"][-1] if snapshot["points"] else {}
    return {
        "name": name,
        **snapshot["process"],
        "pending": snapshot["pending"],
        "waiting": sum(each["pending"] for each in snapshot["purgatories"]),
        "fired": last.get("fired", 0),
        "latest": snapshot["latest"],
        "silent": None,
    }


def _as_silent_row(name: str, seconds: int) -> Json:
    """Return the row of a process that has been silent for *seconds*: it has no numbers."""
    pid, _, _ = name.partition("-")
    return {"name": name, "id": pid, "silent": seconds}
