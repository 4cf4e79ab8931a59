"""Runs of a stream whose queries fail, without Spark."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.stream_run import Phase, StreamRun, Until

pytestmark = pytest.mark.one_build

NO_SPARK: Any = None
SLOW = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."

KAFKA = (
    '[STREAM_FAILED] Query terminated with exception: Cannot invoke "scala.collection.IterableOps'
    '.map(scala.Function1)" because the return value of "scala.Option.get()" is null'
)
DELTA = (
    "[STREAM_FAILED] Query terminated with exception: [DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected "
    "schema change in version 3:"
)


class QueryError(Exception):
    """The error that ends a query."""


class FailingStream:
    """A stream whose first queries end with errors.

    Args:
        folder: The folder of its checkpoint.
        failures: The number of micro-batches that are finished at each error, and its text.
    """

    def __init__(self, folder: Path, *failures: tuple[int, str]) -> None:
        self.checkpoint = Checkpoint(folder)
        self.settings: Mapping[str, object] = {"job": "idle"}
        self._failures: Iterator[tuple[int, str]] = iter(failures)

    def start(self, spark: Any, phase: Phase) -> Any:
        """Return the next query."""
        assert (spark, phase) == (NO_SPARK, Phase.CATCH_UP)
        return SimpleNamespace(awaitTermination=self._wait)

    def _wait(self, _seconds: float) -> bool:
        batches, error = next(self._failures, (0, ""))
        commits = self.checkpoint.folder / "commits"
        commits.mkdir(exist_ok=True)
        for batch in range(batches):
            (commits / str(batch)).touch()
        if error:
            raise QueryError(error)
        return True


def test_a_stream_continues_after_a_slow_start_of_a_python_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark gives a worker 10 s, which a busy machine may exceed; failures count in a batch."""
    batches = [0, 0, 0, 1, 1, 1]
    stream = FailingStream(tmp_path, *((batch, SLOW) for batch in batches))

    ended = StreamRun(stream, NO_SPARK).run(Until.ONCE)

    assert ended is Until.ONCE
    assert caplog.messages == [
        f"aiowheel.stream_restarted {batch=} {failures=}"
        for batch, failures in zip(batches, [1, 2, 3] * 2, strict=True)
    ]


@pytest.mark.parametrize(("batch", "error"), [(1, KAFKA), (0, DELTA)], ids=["kafka", "delta"])
def test_a_stream_continues_after_an_error_of_its_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batch: int, error: str
) -> None:
    """Spark 4.1 ends a query of Kafka after a micro-batch that an earlier query began.

    Delta ends a query before the micro-batch with a new column of the table.
    """
    ended = StreamRun(FailingStream(tmp_path, (batch, error)), NO_SPARK).run(Until.ONCE)

    assert ended is Until.ONCE
    assert caplog.messages == [f"aiowheel.stream_restarted {batch=} failures=1"]


def test_the_reports_of_a_query_are_read_before_its_restart(tmp_path: Path) -> None:
    """Spark has the reports of a query as long as the query is known."""
    queries: list[Any] = []

    StreamRun(FailingStream(tmp_path, (1, DELTA)), NO_SPARK, queries.append).run(Until.ONCE)

    assert len(queries) == 2


@pytest.mark.parametrize(
    ("before", "error"), [(3, SLOW), (0, "Java heap space")], ids=["fourth", "other"]
)
def test_a_stream_ends_with_other_errors(tmp_path: Path, before: int, error: str) -> None:
    """The fourth slow start in one micro-batch and every other error end the stream."""
    stream = FailingStream(tmp_path, *[(0, SLOW)] * before, (0, error))

    with pytest.raises(QueryError, match=error[:15].replace("[", r"\[")):
        StreamRun(stream, NO_SPARK).run(Until.ONCE)
