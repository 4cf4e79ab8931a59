"""Options that several commands have, and checks of options. Rank 5."""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.uris import local_path
from aiowheel.readers._inputs import is_special

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Trace = Annotated[str, typer.Argument(metavar="TRACE", help="Folder of a TraceRecorder, or a URI.")]


class Engine(StrEnum):
    """The engines of a command; both give the same result."""

    WHEEL = "wheel"
    SPARK = "spark"


def number(**more: Any) -> Any:
    """Return an option of typer that takes a number, with other arguments of `typer.Option`."""
    return typer.Option(metavar="N", **more)


@contextlib.contextmanager
def named_as_options(*names: str) -> Generator[None]:
    """Replace an argument's name in an error by the option's, for example "wheel size".

    Raises:
        BadInputError: The error of the block; `--wheel-size must be ...` if it is about a name.
    """
    try:
        yield
    except BadInputError as error:
        text = str(error)
        name = text.partition(" must be ")[0]
        if name not in names:
            raise
        option = f"--{name.replace(' ', '-')}"
        raise BadInputError(f"{option}{text.removeprefix(name)}") from error


def refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse the options whose value is true.

    Raises:
        BadInputError: An option is given; the error names it and *why*.
    """
    for option, value in given.items():
        if value:
            raise BadInputError(f"{option} {why}")


def path_of(text: str) -> Path:
    """Return the path of an option or argument; `parser=path_of` of a typer option.

    Raises:
        ValueError: *text* is the URI of another system; or it is empty, as with an unset shell
            variable. `Path("")` would mean the current folder.
    """
    if not text:
        raise ValueError("must be a path, got ''")
    path = local_path(str(text))  # typer also passes a default, which is a Path
    if path is None:
        raise ValueError(f"must be a path on this machine, got {text!r}")
    return path


def on_this_machine(uri: str, why: str) -> Path:
    """Return the path of a file or folder on this machine.

    Raises:
        BadInputError: *uri* is on another system, which the error explains with *why*; or it is
            malformed.
    """
    path = local_path(uri)
    if path is None:
        raise BadInputError(f"{uri}: {why}")
    return path


def refuse_pipes(paths: Iterable[Path]) -> None:
    """Refuse files that give their bytes only once: Spark's processes open a file several times.

    Raises:
        BadInputError: A path is a pipe, a socket or a device.
    """
    for path in paths:
        if is_special(path):
            raise BadInputError(
                f"{path}: is a pipe, a socket or a device, which --engine spark cannot read: use "
                "--engine wheel, or write the rows to a file first"
            )
