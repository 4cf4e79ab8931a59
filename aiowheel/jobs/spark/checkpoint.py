"""What a stream remembers of itself beside Spark's own checkpoint. Rank 5: no Spark here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from aiowheel.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint folder of one stream.

    Attributes:
        folder: Spark's checkpoint location; our files in it do not disturb Spark.
    """

    folder: Path

    @property
    def flushes(self) -> Path:
        """A folder that the query reads: a file in it ends everything that is open."""
        return self.folder / "flush"

    def open(self, settings: Mapping[str, object]) -> None:
        """Write the settings down on the first start, compare them on every other.

        Raises:
            BadInputError: They differ or cannot be read, or the stream has ended.
        """
        self.flushes.mkdir(parents=True, exist_ok=True)
        file = self.folder / "aiowheel.json"
        if not file.exists():
            _write_whole(file, json.dumps(dict(settings), indent=2))
        theirs = _settings_in(file)
        for name, value in settings.items():
            if name in theirs and theirs[name] != value:  # an older release wrote fewer down
                raise BadInputError(
                    f"{self.folder}: was made with {name} {theirs.get(name)}, not {value}: "
                    "go on with that, or choose another --checkpoint and --out"
                )
        if (self.folder / "ended").exists():
            raise BadInputError(
                f"{self.folder}: this stream has been flushed: choose another --checkpoint and "
                "--out for what came later"
            )

    def job(self) -> str | None:
        """Which job began the stream; None where there is no stream.

        Raises:
            BadInputError: The settings cannot be read.
        """
        file = self.folder / "aiowheel.json"
        if not file.exists():
            return None
        return str(_settings_in(file).get("job"))

    def request_flush(self) -> None:
        """Ask the stream, running or started later, to end once its input is worked off.

        Raises:
            BadInputError: There is no stream.
        """
        if not (self.folder / "aiowheel.json").exists():
            raise BadInputError(f"{self.folder}: no checkpoint of a stream")
        (self.folder / "flush-request").touch()

    def flush_requested(self) -> bool:
        """Whether `request_flush` has been called, in this process or another."""
        return (self.folder / "flush-request").exists()

    def send_flush(self) -> None:
        """Hand the query the row behind which nothing is open; the input must be worked off."""
        _write_whole(self.flushes / "flush", "flush")  # Spark passes over empty files

    def end(self) -> None:
        """Note that the flush has been worked off: there is nothing to go on with."""
        (self.folder / "ended").touch()


def _settings_in(file: Path) -> dict[str, object]:
    try:
        settings: object = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise BadInputError(f"{file}: damaged, and with it the checkpoint")
    return cast("dict[str, object]", settings)


def _write_whole(file: Path, text: str) -> None:
    hidden = file.with_name(f".{file.name}.tmp")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(file)
