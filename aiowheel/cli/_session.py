"""The Spark session of a command, and its options. Rank 5.

A command that runs Spark declares ``master: Master = None``, ``conf: Conf = None`` and
``verbose: Verbose = False``, and passes all three to ``spark_session`` or ``job_session``.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._progress import Progress
from aiowheel.cli._destination import check_apart, check_folder
from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.uris import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: `spark_session` with all arguments but ``uris``.
OpenSession = Callable[..., AbstractContextManager["SparkSession"]]

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
def job_session(
    command: str,
    trace: str | None,
    out: Path | None,
    *,
    master: str | None,
    conf: Sequence[str] | None,
    verbose: bool,
) -> Generator["SparkSession"]:
    """Check the input and output of a job, then open its session, with a progress bar.

    Args:
        command: Name of the command.
        trace: Folder or URI of the trace that the job reads; None if it reads none.
        out: Folder for the results; None if the job writes none.
        master: As for `spark_session`.
        conf: As for `spark_session`.
        verbose: As for `spark_session`.

    Raises:
        BadInputError: There is no trace, or *out* is not a writable folder or lies in the trace;
            or as `spark_session`.
        AiowheelError: As `spark_session`.
    """
    from aiowheel.trace._check import check_trace

    uris = () if trace is None else (trace,)
    if out is not None:
        check_folder(out)
        check_apart(uris, {"--out": str(out)}, are_replaced=False)
    if trace is not None and (folder := local_path(trace)) is not None:
        check_trace(folder)
    name = f"aiowheel {command}"
    with Progress() as progress:
        progress.show(f"{command}: starting Spark")
        with (
            spark_session(name, master=master, conf=conf, verbose=verbose, uris=uris) as spark,
            progress.tasks_of(spark, command),
        ):
            yield spark


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
