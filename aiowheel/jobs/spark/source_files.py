"""The files that Spark has assigned to a micro-batch, read from its checkpoint. Rank 5.

Spark records the files of a micro-batch before reading them, and silently skips files that were
deleted in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.hadoop import exists
from aiowheel.jobs.spark.uris import file_name


def refuse_missing_files(spark: SparkSession, checkpoint: Path, batch_id: int) -> set[str]:
    """Return the files of a micro-batch, after checking that they exist; see `files_of_batch`.

    Raises:
        AiowheelError: Files are missing, or a file of the checkpoint is damaged.

    Cost: one check per file; on an object store, one request.
    """
    files = files_of_batch(checkpoint, batch_id)
    missing = sorted(file for file in files if not _is_there(spark, file))
    if missing:
        more = f" and {len(missing) - 1:,} more files" if len(missing) > 1 else ""
        raise AiowheelError(
            f"{missing[0]}{more}: was there when Spark listed the folder, and is gone before it "
            "was read: put it back, or an empty file in its place to go on without its rows"
        )
    return files


def _is_there(spark: SparkSession, file: str) -> bool:
    return Path(file).exists() if file.startswith("/") else exists(spark, file)


def files_of_batch(checkpoint: Path, batch_id: int) -> set[str]:
    """Return the files that Spark has recorded for a micro-batch, finished or not.

    A local file is a path, any other file a URI. Topics and Delta tables have no files.

    Raises:
        AiowheelError: A file of the checkpoint is damaged.
    """
    before = _offsets(checkpoint, batch_id - 1) if batch_id else []
    found: set[str] = set()
    # A source that a query uses twice has two offsets and one log.
    for source, end in enumerate(_offsets(checkpoint, batch_id)):
        log = checkpoint / "sources" / str(source)
        begin = before[source] if source < len(before) else -1
        for number in range(begin + 1, end + 1):
            found.update(_files_in(log, number))
    return found


def _offsets(checkpoint: Path, batch_id: int) -> list[int]:
    """Return the last log entry of each source in a micro-batch; -1 for a source without files.

    Topics and Delta tables, whose offsets have another form, also count as -1.
    """
    file = checkpoint / "offsets" / str(batch_id)
    if not file.exists():
        return []
    lines = _lines(file)[1:]  # the first line after the version describes the batch
    offsets = [{} if line == "-" else _parsed(file, line) for line in lines]
    # A topic named logOffset has its partitions under this key.
    ends = [offset.get("logOffset") for offset in offsets]
    return [end if isinstance(end, int) else -1 for end in ends]


def _files_in(log: Path, number: int) -> Iterator[str]:
    """Yield the files of one log entry; every tenth entry repeats all earlier ones."""
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
    return file_name(address)


def _lines(file: Path) -> list[str]:
    """Return the lines after the version."""
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
