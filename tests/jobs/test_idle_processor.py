"""The processor of an idle detector's shard, without a JVM."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.readers import Unit

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
processors = pytest.importorskip("aiowheel.jobs.idle.processor", exc_type=ImportError)
testing = pytest.importorskip("pyspark.sql.streaming.tws_tester", exc_type=ImportError)

from aiowheel.jobs.spark.packs import pack  # noqa: E402 - needs the packages checked above
from aiowheel.jobs.spark.watermark import FLUSH_MS  # noqa: E402

pytestmark = pytest.mark.one_build

if TYPE_CHECKING:
    from pandas import DataFrame

TIMEOUT = 100
TOUCHES = pa.schema({"time": pa.int64(), "key": pa.string()})


@pytest.fixture
def bed() -> Iterator[Any]:
    """Yield a shard in milliseconds in Spark's test harness."""
    yield testing.TwsTester(
        processors.IdleProcessor(TIMEOUT, Unit.MS),
        timeMode="EventTime",
        eventTimeExtractor=lambda row: int(row["ts"].timestamp() * 1_000),
    )
    gc.enable()  # the test harness does not close a processor


def frame(*touches: tuple[int, str]) -> "DataFrame":
    """Return one pack of touches; a touch at t has the timestamp t + 1."""
    latest = pd.Timestamp(max(t for t, _ in touches) + 1, unit="ms")
    table: DataFrame = pd.DataFrame({"pack": [pack(TOUCHES, [*touches])], "ts": [latest]})
    return table


def events(table: "DataFrame") -> list[tuple[int, str]]:
    """Return the idle events in an output table."""
    return [] if table.empty else [*table[["fire", "key"]].dropna().itertuples(False, None)]


def test_keys_become_idle_as_the_watermark_advances(bed: Any) -> None:
    """Events come in order of fire time; a key that is touched in time has none."""
    came = bed.testInPandas(0, frame((30, "b"), (10, "a"), (100, "a")))
    assert (came["taken"].sum(), events(came)) == (3, [])

    assert events(bed.setWatermark(130)) == []
    assert events(bed.setWatermark(131)) == [(130, "b")]
    assert events(bed.setWatermark(FLUSH_MS)) == [(200, "a")]
    assert not bed.peekValueState("touches", 0)


def test_late_touches_are_dropped(bed: Any) -> None:
    """Late touches are dropped one by one, although the pack has the latest time of them."""
    bed.testInPandas(0, frame((10, "a")))
    bed.setWatermark(61)

    came = bed.testInPandas(0, frame((60, "a"), (61, "b"), (5, "c")))

    assert came[["shard", "taken"]].to_dict("records") == [{"shard": 0, "taken": 1}]
    assert events(bed.setWatermark(9_999)) == [(110, "a"), (161, "b")]


def test_touches_after_a_flush_are_dropped(bed: Any) -> None:
    """After a flush the stream has ended."""
    bed.setWatermark(FLUSH_MS)

    came = bed.testInPandas(0, frame((FLUSH_MS, "a")))

    assert (came["taken"].sum(), events(came)) == (0, [])
