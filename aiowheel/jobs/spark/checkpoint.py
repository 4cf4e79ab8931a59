"""The files that a stream keeps beside Spark's own checkpoint. Rank 5: no Spark here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiowheel._outputs import whole_file
from aiowheel.errors import AiowheelError, BadInputError

_IN_UNITS = ("timeout", "tick")  # settings in the unit that the setting `unit` names


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint folder of one stream.

    A stream ends in three steps: all input is processed, `begin_end` records this permanently, and
    the flush rows advance time beyond all open keys or operations. A stream that dies after the
    second step can only continue with the third: its watermark may lie beyond every later row.

    Attributes:
        folder: Spark's checkpoint location; Spark ignores the additional files in it.
    """

    folder: Path

    @property
    def flushes(self) -> Path:
        """A folder that the query reads; a file in it advances time and so ends everything open."""
        return self.folder / "flush"

    def open(self, settings: Mapping[str, object]) -> None:
        """Store the settings on the first start, and compare them on every later start.

        Raises:
            BadInputError: See `check`.
        """
        self.check(settings)
        self.flushes.mkdir(parents=True, exist_ok=True)
        if not self._settings.exists():
            _write(self._settings, json.dumps(dict(settings), indent=2))

    def check(self, settings: Mapping[str, object]) -> None:
        """Raise for settings that `open` would refuse, without creating files.

        Raises:
            BadInputError: The settings differ or cannot be read, a file of Spark's is damaged, a
                file is missing, or the stream has ended.
        """
        of_spark = self.folder / "metadata"
        if of_spark.exists() and not self._settings.exists():
            raise _missing(self._settings)  # other settings could not be recognized
        theirs = _settings_in(self._settings) if self._settings.exists() else {}
        for name, value in settings.items():
            if name in theirs and theirs[name] != value:
                of = f" {settings['unit']}" if name in _IN_UNITS and "unit" in settings else ""
                raise BadInputError(
                    f"{self.folder}: was made with {name} {theirs[name]}{of}, not {value}{of}: "
                    "go on with that, or choose another --checkpoint and --out"
                )
        if of_spark.exists():
            _settings_in(of_spark)  # Spark's own error would not name the damaged file
        last = self.last_finished_batch()
        if last >= 0:
            if not (finished := self.folder / "offsets" / str(last)).exists():
                raise _missing(finished)  # Spark would run that micro-batch again, with other rows
            _check_entry(self.folder / "commits" / str(last))
        _check_offsets(self.folder)
        if self._has_ended():
            raise BadInputError(
                f"{self.folder}: this stream has been flushed: choose another --checkpoint and "
                "--out for what came later"
            )

    def job(self) -> str | None:
        """Return which job began the stream; None if there is no stream.

        Raises:
            BadInputError: The settings cannot be read.
        """
        job = self.setting("job")
        return None if job is None else str(job)

    def setting(self, name: str) -> object:
        """Return a setting of the stream; None if it is not stored, or if there is no stream.

        Raises:
            BadInputError: The settings cannot be read.
        """
        return _settings_in(self._settings).get(name) if self._settings.exists() else None

    def last_finished_batch(self) -> int:
        """Return the number of the newest finished micro-batch; -1 before the first."""
        return _newest_in(self.folder / "commits")

    def request_flush(self) -> None:
        """Request that the stream, now or when started later, ends after processing its input.

        Raises:
            BadInputError: There is no stream, or it has ended.
        """
        if not self._settings.exists():
            raise BadInputError(f"{self.folder}: no checkpoint of a stream")
        if self._has_ended():
            raise BadInputError(f"{self.folder}: this stream has been flushed already")
        _write(self.folder / "flush-request", "")

    def flush_requested(self) -> bool:
        """Whether `request_flush` has been called, in this process or another."""
        return (self.folder / "flush-request").exists()

    def begin_end(self) -> None:
        """Record permanently that the input is processed and that no more of it will be read."""
        _write(self.folder / "ending", "")

    def end_begun(self) -> bool:
        """Whether `begin_end` has been called, in this run or an earlier one."""
        return (self.folder / "ending").exists()

    def send_flush(self) -> None:
        """Write a flush row, which advances time beyond everything open; after `begin_end`.

        Each call writes another row: Spark applies the watermark moved by one row only in a later
        micro-batch, which needs a new row.
        """
        number = len(self._flush_files())
        _write(self.flushes / f"flush-{number}", "flush")  # not empty: Spark skips empty files

    def end(self) -> None:
        """Record that the flush is processed: the stream cannot be continued."""
        _write(self.folder / "ended", "")

    def _has_ended(self) -> bool:
        return (self.folder / "ended").exists()

    @property
    def _settings(self) -> Path:
        return self.folder / "aiowheel.json"

    def _flush_files(self) -> list[Path]:
        return [file for file in self.flushes.glob("*") if not file.name.startswith(".")]


def refuse_other_version(found: int, readable: int) -> None:
    """Raise if state of version *found* is stored, and this release reads version *readable*.

    Raises:
        AiowheelError: The versions differ.
    """
    if found != readable:
        raise AiowheelError(
            f"the checkpoint holds state of version {found}, this release reads {readable}: "
            "finish the stream with the release that began it"
        )


def _settings_in(file: Path) -> dict[str, object]:
    try:
        settings: object = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise _damaged(file)
    return cast("dict[str, object]", settings)


def _check_offsets(checkpoint: Path) -> None:
    """Check the two newest files of offsets, which a query reads at its start.

    A file has a version, the data of its micro-batch as JSON, and the offset of each source as JSON
    or ``-``. Spark's own error would not name a file that is not whole.

    Raises:
        BadInputError: A file is not whole, or a log of files does not reach the newest offset.
    """
    files = [file for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdecimal()]
    sources = 1
    offsets: Sequence[object] = ()
    for file in sorted(files, key=lambda file: int(file.name))[-2:]:
        lines = _lines_in(file)
        offsets = () if lines is None else lines[1:]
        if lines is not None and len(offsets) < sources:
            raise _damaged(file)
        sources = len(offsets) or sources  # the sources of a checkpoint do not change
    _check_logs(checkpoint / "sources", offsets)


def _check_logs(sources: Path, offsets: Sequence[object]) -> None:
    """Check that the log of each source of files reaches its offset.

    Otherwise Spark would give a number that it has used to the next files, and skip their rows.
    """
    for number, offset in enumerate(offsets):
        log = sources / str(number)
        if not log.exists() and offset in offsets[:number]:
            continue  # a source that a query uses twice has two equal offsets and one log
        end = cast("dict[str, object]", offset).get("logOffset") if isinstance(offset, dict) else -1
        # Topics and Delta tables have offsets of another form.
        if not isinstance(end, int) or end < 0:
            continue
        if (newest := _newest_in(log)) < end:
            raise _missing(log / str(end))
        for name in (f"{newest}", f"{newest}.compact"):
            _check_entry(log / name)


def _check_entry(file: Path) -> None:
    """Check that an entry of a log of Spark, if there is one of this name, is whole."""
    if file.exists() and _lines_in(file) == []:
        raise _damaged(file)


def _lines_in(file: Path) -> list[Any] | None:
    """Return the values of the lines after the version; None in a format of a later release.

    Raises:
        BadInputError: A line is neither JSON nor ``-``.
    """
    try:
        version, *lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
        if version.startswith("v") and version not in {"v", "v1"}:
            return None
        return [None if line in {"", "-"} else json.loads(line) for line in lines]
    except ValueError as error:
        raise _damaged(file) from error


def _newest_in(log: Path) -> int:
    """Return the number of the newest entry of a log of Spark; -1 if there is none."""
    return max((int(file.name.partition(".")[0]) for file in log.glob("[0-9]*")), default=-1)


def _damaged(file: Path) -> BadInputError:
    return BadInputError(f"{file}: damaged, and with it the checkpoint")


def _missing(file: Path) -> BadInputError:
    return BadInputError(f"{file}: missing, and the checkpoint is damaged without it")


def _write(file: Path, text: str) -> None:
    with whole_file(file) as opened:
        opened.write(text)
