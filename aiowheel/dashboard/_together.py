"""The dashboards of several processes of one host, shown as one. Rank 4.

While there is a viewer, this process reads the looks of all processes, its own included, and adds
them up: what is counted is added, lists are merged, and what belongs to one wheel is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final

from aiowheel._siblings import Siblings
from aiowheel.dashboard._durable import merged_durable
from aiowheel.dashboard._history import SECONDS, added
from aiowheel.dashboard._rotation import SHOWN
from aiowheel.dashboard._waiting import Json
from aiowheel.errors import TimerClosedError

_SEARCH: Final = 1.0  # seconds between two looks for new processes
_PATIENCE: Final = 1.0  # seconds that the first look waits for processes that do not answer
_POINTS: Final = 5  # of the history, in each look


class Together:
    """The looks of all processes of a folder, while they are read.

    Args:
        siblings: This process in the folder. It answers `{"ask": "looks"}` with looks, the first of
            which has all points of its history.
    """

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings
        self._looks: dict[str, Json] = {}  # the last look of each process
        self._points: dict[str, dict[int, Json]] = {}  # by process and second, of dead ones too
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()  # another look has come
        self._searching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Read from now on, and return when every process has answered, or after a second."""
        if self._searching is None:
            self._searching = asyncio.create_task(self._search(), name="aiowheel dashboard")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not self._looks or self._looks.keys() < self._reading.keys():
                    self._news.clear()
                    await self._news.wait()

    def end(self) -> None:
        """Read no more; idempotent."""
        searching, self._searching = self._searching, None
        if searching is not None:
            searching.cancel()
        for task in self._reading.values():
            task.cancel()
        self._reading.clear()
        self._looks.clear()
        self._points.clear()

    def look(self, process: str) -> bytes:
        """Return the last look of *process*, or of all processes where it is "", as JSON.

        Raises:
            TimerClosedError: No process answers.
        """
        if not self._looks:
            raise TimerClosedError("no process answers")
        chosen = self._chosen(process)
        looks = [self._looks[name] for name in chosen]
        shown: Json = {"gone": process}
        if len(looks) == 1 and (process or len(self._looks) == 1):
            shown = looks[0]
        elif looks:
            shown = merged(looks)
        processes = [_as_one_line(name, look) for name, look in sorted(self._looks.items())]
        points = self.points(process, _POINTS)
        shown = {**shown, "points": points, "processes": processes}
        return json.dumps(shown, separators=(",", ":")).encode()

    def points(self, process: str, count: int = SECONDS) -> list[Json]:
        """Return the last points of the history, of *process* or of all, oldest first."""
        by_second: dict[int, list[Json]] = {}
        for name, points in self._points.items():
            if process in {"", name}:
                for second, point in points.items():
                    by_second.setdefault(second, []).append(point)
        return [added(by_second[second]) for second in sorted(by_second)[-count:]]

    def _chosen(self, process: str) -> list[str]:
        return [name for name in sorted(self._looks) if process in {"", name}]

    async def _search(self) -> None:
        while True:
            for name in self._siblings.names():
                if name not in self._reading:
                    self._reading[name] = asyncio.create_task(self._read(name))
            await asyncio.sleep(_SEARCH)

    async def _read(self, name: str) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                async with contextlib.aclosing(self._siblings.ask(name, {"ask": "looks"})) as looks:
                    async for look in looks:
                        self._note(name, look)
        finally:
            if self._reading.get(name) is asyncio.current_task():
                del self._reading[name]
                self._looks.pop(name, None)
                self._news.set()

    def _note(self, name: str, look: Json) -> None:
        self._looks[name] = look
        self._news.set()
        points = self._points.setdefault(name, {})
        for point in look["points"]:
            points[point["second"]] = point
        newest = max(points, default=0)
        for other, theirs in list(self._points.items()):
            for second in [each for each in theirs if each <= newest - SECONDS]:
                del theirs[second]
            if not theirs and other not in self._looks:
                del self._points[other]


def merged(looks: Sequence[Json]) -> Json:
    """Return one look for several processes."""
    return {
        "process": {"run": "+".join(look["process"]["run"] for look in looks)},
        "tick": looks[0]["tick"],
        "next": min((look["next"] for look in looks if look["next"] is not None), default=None),
        "levels": [],
        **{name: sum(look[name] for look in looks) for name in _SUMS},
        "latest": max(look["latest"] for look in looks),
        "purgatories": [_merged_purgatories(each) for each in _by_name(looks, "purgatories")],
        "durable": [merged_durable(each) for each in _by_name(looks, "durable")],
    }


def _by_name(looks: Sequence[Json], kind: str) -> list[list[Json]]:
    found: dict[str, list[Json]] = {}
    for look in looks:
        for each in look[kind]:
            found.setdefault(each["name"], []).append(each)
    return list(found.values())


_SUMS: Final = ("pending", "scheduled", "fired", "errors")


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


def _as_one_line(name: str, look: Json) -> Json:
    """Return what the table of processes shows of one."""
    last: Json = look["points"][-1] if look["points"] else {}
    return {
        "name": name,
        **look["process"],
        "pending": look["pending"],
        "waiting": sum(each["pending"] for each in look["purgatories"]),
        "fired": last.get("fired", 0),
        "latest": look["latest"],
    }
