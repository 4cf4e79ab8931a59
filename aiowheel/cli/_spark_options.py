"""What every command that runs Spark shares: its options, and a session that fails in one line.

Rank 5. A command declares ``master: Master = ANY_CORE``, ``conf: Conf = None`` and
``verbose: Verbose = False``, and hands all three to ``spark_session``.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANY_CORE = "local[*]"

Master = Annotated[
    str, typer.Option(metavar="URL", help="Spark master: local[*], spark://HOST:PORT, ...")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show Spark's log, and all of its errors, on stderr.")
]


@contextlib.contextmanager
def spark_session(
    app_name: str,
    *,
    master: str = ANY_CORE,
    conf: Sequence[str] | None = None,
    verbose: bool = False,
) -> Generator["SparkSession"]:
    """Open a session; a failure inside the block is one line, SIGTERM ends it like SIGINT.

    Raises:
        BadInputError: *conf* or *master* cannot be used.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark failed.
    """
    from aiowheel.pipeline.failures import one_line_failures
    from aiowheel.pipeline.session import open_session

    settings = parse_conf(conf)
    with (
        terminated_like_interrupted(),
        open_session(app_name, master=master, conf=settings, verbose=verbose) as spark,
        one_line_failures(verbose=verbose),  # innermost: a dead JVM cannot tell what it threw
    ):
        yield spark


def parse_conf(pairs: Sequence[str] | None) -> dict[str, str]:
    """Read the values of ``--conf``; of one key given twice the last counts.

    Raises:
        BadInputError: One of them is not like KEY=VALUE.
    """
    settings: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (equals and name.strip()):
            raise BadInputError(f"--conf: want KEY=VALUE, got {pair!r}")
        settings[name.strip()] = value
    return settings


@contextlib.contextmanager
def signals_noted() -> Generator[threading.Event]:
    """Let SIGINT and SIGTERM set an event inside the block, instead of raising anywhere.

    An exception in the middle of a call to Spark would leave its connection out of step.
    """
    noted = threading.Event()
    with _handling(lambda _number, _frame: noted.set(), signal.SIGINT, signal.SIGTERM):
        yield noted


@contextlib.contextmanager
def terminated_like_interrupted() -> Generator[None]:
    """Let SIGTERM raise KeyboardInterrupt inside the block, so that temporary files go.

    A second one while that cleaning lasts is ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    with _handling(interrupt, signal.SIGTERM):
        yield


@contextlib.contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python hands signals to the main thread, and lets no other set a handler
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
