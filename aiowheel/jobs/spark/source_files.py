"""Which files Spark has promised to a micro-batch, read from its checkpoint. Rank 5: no Spark here.

Spark notes the files of a micro-batch before it reads them, and then passes over those that have
gone in the meantime without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aiowheel.errors import AiowheelError


def refuse_missing_files(checkpoint: Path, batch_id: int) -> None:
    """Look for the files of a micro-batch before it is worked off.

    Raises:
        AiowheelError: Files are gone, or a file of the checkpoint is damaged.
    """
    missing = sorted(file for file in files_of_batch(checkpoint, batch_id) if not file.exists())
    if missing:
        more = f" and {len(missing) - 1:,} more files" if len(missing) > 1 else ""
        raise AiowheelError(
            f"{missing[0]}{more}: was there when Spark listed the folder, and is gone before it "
            "was read: put it back, or an empty file in its place to go on without its rows"
        )


def files_of_batch(checkpoint: Path, batch_id: int) -> set[Path]:
    """The files that Spark has noted for a micro-batch, whether it has finished or not.

    Raises:
        AiowheelError: A file of the checkpoint is damaged.
    """
    before = _offsets(checkpoint, batch_id - 1) if batch_id else []
    found: set[Path] = set()
    # A source that is used twice in a query has two offsets and one log.
    for source, end in enumerate(_offsets(checkpoint, batch_id)):
        log = checkpoint / "sources" / str(source)
        begin = before[source] if source < len(before) else -1
        for number in range(begin + 1, end + 1):
            found.update(_files_in(log, number))
    return found


def _offsets(checkpoint: Path, batch_id: int) -> list[int]:
    """Up to which entry of its log each source has come; -1 for one that has had no file."""
    file = checkpoint / "offsets" / str(batch_id)
    if not file.exists():
        return []
    lines = _lines(file)[1:]  # below the version stands what Spark keeps about the batch
    return [-1 if line == "-" else int(_parsed(file, line, "logOffset")[0]) for line in lines]


def _files_in(log: Path, number: int) -> Iterator[Path]:
    """The files of one entry; every tenth one holds all that came before it, too."""
    for file in (log / str(number), log / f"{number}.compact"):
        if file.exists():
            for line in _lines(file):
                batch, address = _parsed(file, line, "batchId", "path")
                if batch == number:
                    yield Path(unquote(urlsplit(address).path))


def _lines(file: Path) -> list[str]:
    """The lines below the version."""
    try:
        return file.read_text(encoding="utf-8").split("\n")[1:]
    except (OSError, ValueError) as error:
        raise _damaged(file) from error


def _parsed(file: Path, line: str, *names: str) -> list[Any]:
    try:
        entry = json.loads(line)
        return [entry[name] for name in names]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(file) from error


def _damaged(file: Path) -> AiowheelError:
    return AiowheelError(f"{file}: damaged, and with it the checkpoint")
