"""Planted bugs: patch files with a sentence, the world that must find the bug, and a test file.

A patch is a unified diff below a head of `Name: value` lines. This module applies it without an
external program: the lines of a hunk must occur in the file exactly once, in that order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


@dataclass(frozen=True)
class Planted:
    """One bug.

    Attributes:
        name: The name of the patch file.
        bug: The bug, as a sentence.
        world: The world whose simulation runs first, or "none".
        suite: The test files that run if the simulation does not find the bug.
        file: The path of the file with the bug, from the root.
        hunks: The lines before and after the change, one pair for each hunk.
    """

    name: str
    bug: str
    world: str
    suite: str
    file: str
    hunks: tuple[tuple[str, str], ...]

    def applied(self, source: str) -> str:
        """Return *source* with the bug.

        Raises:
            ValueError: The lines of a hunk do not occur in *source* exactly once.
        """
        for before, after in self.hunks:
            if source.count(before) != 1:
                raise ValueError(
                    f"{self.name}: the place must be in {self.file} once, got "
                    f"{source.count(before)} times:\n{before}"
                )
            source = source.replace(before, after)
        return source


def read(path: Path) -> Planted:
    """Read a patch file."""
    head, _, diff = path.read_text(encoding="utf-8").partition("\n--- ")
    fields = dict(line.split(": ", 1) for line in head.splitlines() if line)
    lines = diff.splitlines()
    file = lines[1].removeprefix("+++ b/")
    hunks: list[tuple[list[str], list[str]]] = []
    for line in lines[2:]:
        if re.match(r"@@ .* @@", line):
            hunks.append(([], []))
            continue
        before, after = hunks[-1]
        if not line.startswith("+"):
            before.append(line[1:])
        if not line.startswith("-"):
            after.append(line[1:])
    texts = tuple(
        ("".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after))
        for before, after in hunks
    )
    return Planted(path.stem, fields["Bug"], fields["World"], fields["Suite"], file, texts)


def all_planted() -> list[Planted]:
    """Read all patches, in the order of their names."""
    return [read(path) for path in sorted(FOLDER.glob("*.patch"))]
