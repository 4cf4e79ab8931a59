"""How a command follows a stream until its end, or until a signal. Rank 5."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from aiowheel.cli._signals import signals_noted

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

LOOK_SECONDS = 1  # far below the time of a hundred micro-batches, of which Spark keeps reports


def follow(
    work: Callable[[], T], queries: "Iterable[StreamingQuery]", look: Callable[[], object]
) -> T | None:
    """Wait for the end of *work*, with *look* called meanwhile and afterwards; stop the queries.

    Returns:
        What *work* returned; None when SIGINT or SIGTERM came first.
    """
    # Waiting for Spark cannot be interrupted without harm, so a thread does it.
    with signals_noted() as stop, ThreadPoolExecutor(1) as waiting:
        end = waiting.submit(work)
        while not (stop.is_set() or end.done()):
            stop.wait(LOOK_SECONDS)
            look()
        for query in queries:
            query.stop()
        look()
        if stop.is_set():
            return None
    return end.result()
