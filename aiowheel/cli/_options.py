"""Options that several commands have, and the Spark session of a command. Rank 5.

A command that runs Spark declares ``master: Master = None``, ``conf: Conf = None`` and
``verbose: Verbose = False``, and passes all three to ``spark_session``.
"""

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.uris import local_path
from aiowheel.readers._inputs import is_special

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Trace = Annotated[str, typer.Argument(metavar="TRACE", help="Folder of a TraceRecorder, or a URI.")]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        show_default="as configured",
        help="Spark master: local[2], spark://HOST:PORT, ...",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Spark setting; may be repeated."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show Spark's log and complete errors on stderr.")
]


class Engine(StrEnum):
    """The engines of a command; both give the same result."""

    WHEEL = "wheel"
    SPARK = "spark"


def number(**more: Any) -> Any:
    """Return an option of typer that takes a number, with other arguments of `typer.Option`."""
    return typer.Option(metavar="N", **more)


@contextlib.contextmanager
def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Sequence[str] | None = None,
    verbose: bool = False,
    uris: Iterable[str] = (),
) -> Generator["SparkSession"]:
    """Open a session with the connectors of *uris*; report a failure in the block in one line.

    Raises:
        BadInputError: *conf*, *master* or a URI cannot be used.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark failed, or no broker of a topic answers.
    """
    from aiowheel.jobs.spark.brokers import check_brokers
    from aiowheel.jobs.spark.connectors import connector_settings
    from aiowheel.jobs.spark.failures import one_line_failures
    from aiowheel.jobs.spark.session import open_session

    settings = parse_conf(conf)
    uris = [*uris]
    check_brokers(uris)
    with (
        open_session(
            app_name,
            master=master,
            conf=settings,
            connectors=connector_settings(uris, settings),
            verbose=verbose,
        ) as spark,
        one_line_failures(verbose=verbose),  # innermost: it must read the error before the JVM ends
    ):
        yield spark


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


def parse_conf(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse the values of ``--conf``; the last value of a key counts.

    Raises:
        BadInputError: A value does not have the form KEY=VALUE.
    """
    settings: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (equals and name.strip()):
            raise BadInputError(f"--conf must be KEY=VALUE, got {pair!r}")
        settings[name.strip()] = value
    return settings
