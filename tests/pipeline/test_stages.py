"""The two stateful stages of the streaming purgatory, without a JVM."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.errors import AiowheelError
from aiowheel.readers import Unit
from aiowheel.rules import NEVER, NO_VALUE

pd = pytest.importorskip("pandas")
stages = pytest.importorskip("aiowheel.pipeline._stages", exc_type=ImportError)
testing = pytest.importorskip("pyspark.sql.streaming.tws_tester", exc_type=ImportError)

from aiowheel.pipeline import _event_time  # noqa: E402 - it needs what is asked for above
from aiowheel.pipeline._shard_state import STATE_VERSION, read_state  # noqa: E402

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ["ts", "id", "key", "time", "value", "keys", "wanted", "deadline"]
TICK = 10


def operation(id_: str, key: str, created: int, deadline: int, **more: Any) -> dict[str, Any]:
    """One copy of an operation, as the first stage gets it."""
    row = {"id": id_, "key": key, "time": created, "deadline": deadline}
    return row | {"value": NO_VALUE, "keys": [key], "wanted": 1} | more


def event(key: str, time: int, **more: Any) -> dict[str, Any]:
    """An event; with an id a hit."""
    row = {"id": "", "key": key, "time": time, "value": NO_VALUE, "keys": None, "wanted": 0}
    return row | {"deadline": stages.NO_OPERATION} | more


def frame(rows: Iterable[dict[str, Any]]) -> "DataFrame":
    """Rows with the columns of the stages, in milliseconds."""
    table: DataFrame = pd.DataFrame(list(rows))
    table["ts"] = _event_time.timestamps(table["time"].tolist(), Unit.MS)
    table["keys"] = table["keys"].astype(object)
    return table[COLUMNS].assign(shard=0)


def bed_of(stage: type) -> Any:
    """A stage in a test bed of Spark's, where rows not after the watermark are dropped."""
    return testing.TwsTester(
        stage(TICK, Unit.MS),
        timeMode="EventTime",
        eventTimeExtractor=lambda row: int(row["ts"].timestamp() * 1_000),
    )


def emitted(table: "DataFrame", *columns: str) -> list[tuple[Any, ...]]:
    """What a stage put out."""
    if table.empty:
        return []
    return list(table[list(columns)].itertuples(index=False, name=None))


def test_the_first_stage_passes_an_operation_on_once() -> None:
    """With the copy that carries the keys; the others only wait on their key."""
    bed = bed_of(stages.MatchKeys)
    copies = [
        operation("x", "a", 100, 500, keys=["a", "b"], wanted=2),
        operation("x", "b", 100, 500, keys=None, wanted=2),
    ]

    passed = bed.testInPandas(0, frame(copies))

    assert emitted(passed, "id", "time", "wanted", "deadline") == [("x", 100, 2, 500)]
    assert passed["keys"].tolist() == [["a", "b"]]
    assert "shard" not in passed.columns


def test_hits_leave_when_the_watermark_passes_them() -> None:
    """Not before, because an earlier event may still come; each key is hit once."""
    bed = bed_of(stages.MatchKeys)
    bed.testInPandas(0, frame([operation("x", "a", 100, 500), event("a", 300), event("a", 200)]))

    early = bed.setWatermark(200)
    hits = bed.setWatermark(201)  # times are a millisecond behind the watermark
    later = bed.setWatermark(9_999)

    assert emitted(early, "id") == []
    assert emitted(hits, "id", "key", "time", "deadline") == [("x", "a", 200, stages.NO_OPERATION)]
    assert emitted(later, "id") == []
    assert not bed.peekValueState(stages.STATE_NAME, 0)


def test_rows_out_of_order_are_put_in_order() -> None:
    """Backwards, and in two batches."""
    bed = bed_of(stages.MatchKeys)
    bed.testInPandas(0, frame([event("a", 450), event("a", 350)]))
    bed.testInPandas(0, frame([event("a", 250), operation("x", "a", 300, 500)]))

    hits = bed.setWatermark(10_000)

    assert emitted(hits, "id", "time") == [("x", 350)]


def test_the_second_stage_decides() -> None:
    """By the last of the wanted keys, or by the tick after the deadline."""
    bed = bed_of(stages.DecideOperations)
    bed.testInPandas(
        0,
        frame(
            [
                operation("all", "", 100, 505, keys=["a", "b"], wanted=2),
                operation("any", "", 100, 505, keys=["a", "b"]),
                operation("none", "", 100, 505, keys=["a"]),
                operation("ever", "", 100, NEVER, keys=["a"]),
                event("b", 200, id="any"),
                event("b", 200, id="all"),
                event("a", 300, id="all"),
                event("a", 250, id="any"),
            ]
        ),
    )

    outcomes = bed.setWatermark(10_000)

    assert emitted(outcomes, "id", "outcome", "completed_by", "at") == [
        ("any", "completed", "b", 200),
        ("all", "completed", "a", 300),
        ("none", "expired", None, 510),
    ]
    version, _, data = bed.peekValueState(stages.STATE_NAME, 0)
    waiting, created, events = read_state(version, data)
    assert ([row.id for row in waiting], created, events) == (["ever"], [], [])
    assert stages.key_of_hit("ever", waiting[0].keys[0]) == "a"


def test_hits_of_one_operation_are_not_those_of_another() -> None:
    """However ids and keys may run together."""
    bed = bed_of(stages.DecideOperations)
    rows = [
        operation("a", "", 100, 500, keys=["bc"]),
        operation("ab", "", 100, 500, keys=["c"]),
        event("c", 200, id="ab"),
    ]
    bed.testInPandas(0, frame(rows))

    outcomes = bed.setWatermark(10_000)

    assert emitted(outcomes, "id", "outcome", "completed_by") == [
        ("ab", "completed", "c"),
        ("a", "expired", None),
    ]


def test_state_of_another_version_is_refused() -> None:
    """It is not misread."""
    bed = bed_of(stages.DecideOperations)
    bed.testInPandas(0, frame([operation("x", "", 100, 500, keys=["a"])]))
    _, settled, data = bed.peekValueState(stages.STATE_NAME, 0)
    bed.updateValueState(stages.STATE_NAME, 0, (STATE_VERSION + 1, settled, data))

    with pytest.raises(AiowheelError, match="state of version 2, this release reads 1"):
        bed.setWatermark(10_000)


@pytest.mark.parametrize("unit", Unit, ids=str)
@pytest.mark.parametrize("watermark_ms", [1, 2, 999, 1_000, 1_001, 123_456_789])
def test_what_is_after_the_frontier_is_not_late(unit: Unit, watermark_ms: int) -> None:
    """And what is not, is: Spark drops what is at or before its watermark, in microseconds."""
    settled = _event_time.frontier(watermark_ms, unit)

    last, first = _event_time.timestamps([settled, settled + 1], unit).astype(int).tolist()

    assert last <= watermark_ms * 1_000 < first


def test_a_time_of_0_is_a_time() -> None:
    """The watermark of a stream that saw nothing is 0, and would take it for late."""
    assert _event_time.timestamps([0], Unit.S).astype(int).tolist() == [1_000]
    assert _event_time.frontier(0, Unit.S) == -1
