"""Files of touches, read by Spark's workers with the common reader. Rank 5.

The task that reads a file also writes its bad rows: one Parquet file of rejects per input file,
named by the path of the input. A task that Spark repeats replaces its file.
"""

import hashlib
import secrets
import time as clock
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.packs import PACK, PACK_DDL, batch_of, packs_of
from aiowheel.readers import Format, Inputs, Reject
from aiowheel.readers._row_rules import RowRules

#: Packs of touches by time and key; after each file, a row without a pack that counts bad rows.
TOUCHES_DDL = f"{PACK_DDL}, rejected bigint, irregular bigint"

REJECTS = pa.schema(
    {
        "source": pa.string(),
        "line": pa.int64(),
        "reason": pa.string(),
        "raw": pa.string(),
        "used": pa.bool_(),
    }
)

_DAY_SECONDS = 86_400
_REJECTS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class TouchFiles:
    """How to read a file of touches; Spark pickles this object for its workers.

    Attributes:
        rules: The rules for the rows.
        format: The format of every file; None derives it from the suffix.
        latest: The latest accepted time; None means one day after reading starts, so that a wrong
            time cannot end the stream.
        limit: The greatest possible time, an upper bound of *latest*.
    """

    rules: RowRules
    format: Format | None
    latest: int | None
    limit: int

    @property
    def key_setting(self) -> str | list[str]:
        """The key for a file of JSON, which has no tuples; a single name has one form."""
        key = self.rules.key
        names = [key] if isinstance(key, str) else list(key)
        return names[0] if len(names) == 1 else names

    def reader(
        self, rejects: Path, shards: int
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function for ``mapInArrow`` that maps a ``path`` to `TOUCHES_DDL`."""

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            numbers = count()
            for batch in batches:
                for address in batch.column("path").to_pylist():
                    path = Path(address.removeprefix("file:"))
                    yield from self._read_file(path, rejects, shards, numbers)

        return read

    def _read_file(
        self, path: Path, rejects: Path, shards: int, numbers: Iterator[int]
    ) -> Iterator[pa.RecordBatch]:
        if not path.exists():  # not bad input: Spark has noted the file in its checkpoint
            raise AiowheelError(f"{path}: was there when Spark listed it, and is gone")
        with _RejectsFile(path, rejects) as aside:
            rows = self.rules.rows(
                Inputs([str(path)], self.format),
                latest=min(self.limit, self._latest_now()),
                allow_empty=True,
                put_aside=aside.put,
            )
            # A damaged file fails the micro-batch, which Spark then repeats: if the file were
            # skipped, its rows would never be read.
            for batch in rows.batches():
                if batch.keys:
                    yield _counted(_packed(batch.times, batch.keys, shards, numbers), 0, 0)
        nothing = pa.RecordBatch.from_pylist([{}], PACK)
        yield _counted(nothing, rows.rejected, rows.irregular)

    def _latest_now(self) -> int:
        if self.latest is not None:
            return self.latest
        return int(clock.time() + _DAY_SECONDS) * self.rules.unit.per_second


class _RejectsFile:
    """The file of the rejects of one input file; it exists only if there are rejects.

    Spark may run two attempts of a task at the same time, so each writes its own hidden file.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        self._place = folder / f"{name}.parquet"
        self._hidden = folder / f".{name}.{secrets.token_hex(8)}.tmp"
        self._rows: list[Reject] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def put(self, reject: Reject) -> None:
        # A text column cannot hold invalid UTF-8.
        raw = reject.raw.encode(errors="surrogateescape").decode(errors="replace")
        self._rows.append(reject._replace(raw=raw))
        if len(self._rows) == _REJECTS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        writer = self._writer
        if writer is None:
            self._hidden.parent.mkdir(parents=True, exist_ok=True)
            writer = self._writer = pq.ParquetWriter(self._hidden, REJECTS, compression="zstd")
        writer.write_batch(batch_of(REJECTS, self._rows))
        self._rows = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._rows:
                self._write()
            if self._writer is not None:
                self._writer.close()
            if kind is None and self._writer is not None:
                self._hidden.replace(self._place)
            elif kind is None:  # an earlier attempt may have had other limits of the times
                self._place.unlink(missing_ok=True)
        finally:
            self._hidden.unlink(missing_ok=True)


def _packed(
    times: list[int], keys: list[str], shards: int, numbers: Iterator[int]
) -> pa.RecordBatch:
    columns = {"time": pa.array(times, pa.int64()), "key": pa.array(keys, pa.string())}
    encoded = columns["key"].dictionary_encode()
    homes = [crc32(key.encode()) % shards for key in encoded.dictionary.to_pylist()]
    columns["shard"] = pa.array(homes, pa.int32()).take(encoded.indices)
    return packs_of(pa.RecordBatch.from_pydict(columns), numbers)


def _counted(packs: pa.RecordBatch, rejected: int, irregular: int) -> pa.RecordBatch:
    for name, rows in (("rejected", rejected), ("irregular", irregular)):
        packs = packs.append_column(name, pa.array([rows] * packs.num_rows, pa.int64()))
    return packs
