"""Which files Spark has promised to a micro-batch, read from its checkpoint. Rank 5.

Spark notes the files of a micro-batch before it reads them, and then passes over those that have
gone in the meantime without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.hadoop import exists


def refuse_missing_files(spark: SparkSession, checkpoint: Path, batch_id: int) -> None:
    """Look for the files of a micro-batch before it is worked off.

    Raises:
        AiowheelError: Files are gone, or a file of the checkpoint is damaged.

    Cost: a look at each file; of an object store a request.
    """
    files = files_of_batch(checkpoint, batch_id)
    missing = sorted(file for file in files if not _is_there(spark, file))
    if missing:
        more = f" and {len(missing) - 1:,} more files" if len(missing) > 1 else ""
        raise AiowheelError(
            f"{missing[0]}{more}: was there when Spark listed the folder, and is gone before it "
            "was read: put it back, or an empty file in its place to go on without its rows"
        )


def _is_there(spark: SparkSession, file: str) -> bool:
    return Path(file).exists() if file.startswith("/") else exists(spark, file)


def files_of_batch(checkpoint: Path, batch_id: int) -> set[str]:
    """The files that Spark has noted for a micro-batch, whether it has finished or not.

    A file of this machine is a path, any other one a URI. Topics and Delta tables have none.

    Raises:
        AiowheelError: A file of the checkpoint is damaged.
    """
    before = _offsets(checkpoint, batch_id - 1) if batch_id else []
    found: set[str] = set()
    # A source that is used twice in a query has two offsets and one log.
    for source, end in enumerate(_offsets(checkpoint, batch_id)):
        log = checkpoint / "sources" / str(source)
        begin = before[source] if source < len(before) else -1
        for number in range(begin + 1, end + 1):
            found.update(_files_in(log, number))
    return found


def _offsets(checkpoint: Path, batch_id: int) -> list[int]:
    """Up to which entry of its log each source has come; -1 for one that has had no file.

    A topic and a Delta table, which have another kind of offset, are among the latter.
    """
    file = checkpoint / "offsets" / str(batch_id)
    if not file.exists():
        return []
    lines = _lines(file)[1:]  # below the version stands what Spark keeps about the batch
    offsets = [{} if line == "-" else _parsed(file, line) for line in lines]
    return [int(offset.get("logOffset", -1)) for offset in offsets]


def _files_in(log: Path, number: int) -> Iterator[str]:
    """The files of one entry; every tenth one holds all that came before it, too."""
    for file in (log / str(number), log / f"{number}.compact"):
        if file.exists():
            for line in _lines(file):
                entry = _parsed(file, line)
                if entry.get("batchId") == number:
                    yield _name_of(file, entry)


def _name_of(log: Path, entry: dict[str, Any]) -> str:
    address = entry.get("path")
    if not isinstance(address, str):
        raise _damaged(log)
    return unquote(urlsplit(address).path if urlsplit(address).scheme == "file" else address)


def _lines(file: Path) -> list[str]:
    """The lines below the version."""
    try:
        return file.read_text(encoding="utf-8").split("\n")[1:]
    except (OSError, ValueError) as error:
        raise _damaged(file) from error


def _parsed(file: Path, line: str) -> dict[str, Any]:
    try:
        entry: Any = json.loads(line)
    except ValueError as error:
        raise _damaged(file) from error
    if not isinstance(entry, dict):
        raise _damaged(file)
    return cast("dict[str, Any]", entry)


def _damaged(file: Path) -> AiowheelError:
    return AiowheelError(f"{file}: damaged, and with it the checkpoint")
