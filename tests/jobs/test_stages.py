"""The two stateful stages of the streaming purgatory, without a JVM."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.errors import AiowheelError
from aiowheel.readers import Unit
from aiowheel.rules import NEVER, NO_VALUE

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
stages = pytest.importorskip("aiowheel.jobs.operations.stages", exc_type=ImportError)
testing = pytest.importorskip("pyspark.sql.streaming.tws_tester", exc_type=ImportError)

from aiowheel.jobs.operations.decided import Decided  # noqa: E402
from aiowheel.jobs.operations.shard_state import STATE_VERSION, read_state  # noqa: E402
from aiowheel.jobs.spark import watermark as _event_time  # noqa: E402 - needs the packages checked above
from aiowheel.jobs.spark.packs import pack_rows, unpack  # noqa: E402

pytestmark = pytest.mark.one_build

if TYPE_CHECKING:
    from pandas import DataFrame

TICK = 10
DECIDED = Path("decided")
COPIES = pa.schema(
    {
        "id": pa.string(),
        "key": pa.string(),
        "time": pa.int64(),
        "least": pa.int64(),
        "keys": pa.list_(pa.string()),
        "wanted": pa.int64(),
        "deadline": pa.int64(),
    }
)
EVENTS = pa.schema({"key": pa.string(), "time": pa.int64(), "value": pa.int64()})


@pytest.fixture(autouse=True)
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the number of the micro-batch, which tests may change and Spark's tasks read.

    The test harness does not close a stage, which keeps the collector off.
    """
    number = [0]
    monkeypatch.setattr(stages, "current_batch", lambda: number[0])
    monkeypatch.chdir(tmp_path)
    yield number
    gc.enable()


def copy(id_: str, key: str, created: int, deadline: int, **more: Any) -> dict[str, Any]:
    """Return one copy of an operation, as input of the first stage."""
    row = {"id": id_, "key": key, "time": created, "deadline": deadline}
    return row | {"least": NO_VALUE, "keys": [key], "wanted": 1} | more


def operation(id_: str, keys: list[str], created: int, deadline: int, wanted: int) -> Any:
    """Return an operation, as input of the second stage."""
    return {"id": id_, "keys": keys, "time": created, "deadline": deadline, "wanted": wanted}


def event(key: str, time: int) -> dict[str, Any]:
    """Return an event, as input of the first stage."""
    return {"key": key, "time": time, "value": NO_VALUE}


def hit(id_: str, key: str, time: int) -> dict[str, Any]:
    """Return a hit, as input of the second stage."""
    return {"id": id_, "key": key, "time": time}


def packed(schema: Any, rows: list[dict[str, Any]]) -> bytes | None:
    """Pack rows of one shard like a worker."""
    if not rows:
        return None
    batch = pa.RecordBatch.from_pylist(rows, schema)
    (pack,) = pack_rows([batch.append_column("shard", pa.array([0] * len(rows), pa.int32()))])
    assert pack.column("count").to_pylist() == [len(rows)]
    assert pack.column("latest").to_pylist() == [max(row["time"] for row in rows)]
    data: bytes = pack.column("pack")[0].as_py()
    return data


def frame(operations: list[dict[str, Any]], events: list[dict[str, Any]]) -> "DataFrame":
    """Return rows of a micro-batch, in milliseconds, as input of their stage."""
    first = any("least" in row for row in operations) or any("value" in row for row in events)
    schemas = (COPIES, EVENTS) if first else (stages.ENTRANTS, stages.HITS)
    latest = max(row["time"] for row in (*operations, *events))
    table: DataFrame = pd.DataFrame(
        {
            "shard": [0],
            "ts": _event_time.timestamps([latest], Unit.MS),
            "operations": [packed(schemas[0], operations)],
            "events": [packed(schemas[1], events)],
        }
    )
    return table


def bed_of(stage: Any) -> Any:
    """Return a stage in Spark's test harness, with rows up to the watermark dropped."""
    return testing.TwsTester(
        stage,
        timeMode="EventTime",
        eventTimeExtractor=lambda row: int(row["ts"].timestamp() * 1_000),
    )


def first_stage() -> Any:
    """Return a first stage, before a second one of two shards."""
    return bed_of(stages.MatchKeys(TICK, Unit.MS, Decided(DECIDED), 2))


def second_stage() -> Any:
    """Return a second stage in its own test harness."""
    return bed_of(stages.DecideOperations(TICK, Unit.MS, Decided(DECIDED)))


def passed(table: "DataFrame", kind: str) -> list[tuple[Any, ...]]:
    """Return the first stage's output of one kind."""
    if table.empty:
        return []
    return sorted(row for data in table[kind].dropna() for row in unpack(data))


def ended(table: "DataFrame") -> list[tuple[Any, ...]]:
    """Return the second stage's output."""
    if table.empty:
        return []
    rows = table.dropna(subset="id").drop(columns="entered").itertuples(False, None)
    # A missing text is None, or in pandas 3 NaN, which is not equal to itself.
    return [tuple(cell if cell == cell else None for cell in row) for row in rows]  # noqa: PLR0124


def test_the_first_stage_emits_an_operation_once() -> None:
    """The copy with the keys emits it; the other copies only wait on their key."""
    copies = [
        copy("x", "a", 100, 500, keys=["a", "b"], wanted=2),
        copy("x", "b", 100, 500, keys=None, wanted=2),
    ]

    table = first_stage().testInPandas(0, frame(copies, []))

    assert passed(table, "operations") == [("x", 100, ["a", "b"], 2, 500)]
    assert table["taken_operations"].sum() == 1


def test_an_operation_and_its_hits_go_to_one_shard() -> None:
    """Rows from any shard of the first stage go to the same shard."""
    ids = [f"o{number}" for number in range(20)]
    bed = first_stage()
    came = bed.testInPandas(0, frame([copy(id_, "a", 100, 500) for id_ in ids], []))
    bed.testInPandas(0, frame([], [event("a", 200)]))

    hits = bed.setWatermark(300)

    homes = [
        {(row[0], shard) for data, shard in zip(table[kind], table["shard"], strict=True) if data
         for row in unpack(data)}
        for table, kind in ((came, "operations"), (hits, "events"))
    ]  # fmt: skip
    assert homes[0] == homes[1]
    assert {shard for _, shard in homes[0]} == {0, 1}
    assert len(homes[0]) == len(ids)


def test_columns_come_in_the_declared_order() -> None:
    """A session with `groupedMap.assignColumnsByName` off assigns them by position."""
    first, second = first_stage(), second_stage()
    operations = [operation("x", ["a"], 100, 500, 1)]

    outputs = {
        stages.MATCHED_DDL: [
            first.testInPandas(0, frame([copy("x", "a", 100, 500)], [event("a", 200)])),
            first.setWatermark(300),
        ],
        stages.OUTCOME_DDL: [
            second.testInPandas(0, frame(operations, [hit("x", "a", 200)])),
            second.setWatermark(300),
        ],
    }

    for ddl, tables in outputs.items():
        for table in tables:
            assert list(table.columns) == [column.split()[0] for column in ddl.split(", ")]


def test_late_rows_are_dropped() -> None:
    """Late rows are dropped one by one, although the pack has the latest time of them."""
    bed = first_stage()
    bed.setWatermark(301)
    copies = [copy("late", "a", 300, 900), copy("new", "a", 301, 900)]

    table = bed.testInPandas(0, frame(copies, [event("a", 250), event("a", 305)]))

    assert passed(table, "operations") == [("new", 301, ["a"], 1, 900)]
    assert table[["taken_operations", "taken_events"]].sum().tolist() == [1, 1]
    assert passed(bed.setWatermark(9_999), "events") == [("new", 305, "a")]


def test_hits_leave_when_the_watermark_passes_them() -> None:
    """An earlier event may come before the watermark; each key is hit once."""
    bed = first_stage()
    bed.testInPandas(0, frame([copy("x", "a", 100, 500)], [event("a", 300), event("a", 200)]))

    early = bed.setWatermark(200)
    hits = bed.setWatermark(201)  # times are shifted by a millisecond
    later = bed.setWatermark(9_999)

    assert passed(early, "events") == []
    assert passed(hits, "events") == [("x", 200, "a")]
    assert hits["ts"].tolist() == [pd.Timestamp(201, unit="ms", tz="UTC")]
    assert passed(later, "events") == []
    assert not bed.peekValueState(stages.STATE_NAME, 0)


def test_rows_out_of_order_are_put_in_order() -> None:
    """Rows come backwards, and in two batches."""
    bed = first_stage()
    bed.testInPandas(0, frame([], [event("a", 450), event("a", 350)]))
    bed.testInPandas(0, frame([copy("x", "a", 300, 500)], [event("a", 250)]))

    hits = bed.setWatermark(10_000)

    assert passed(hits, "events") == [("x", 350, "a")]


def test_the_second_stage_decides() -> None:
    """An operation ends by the last of the wanted keys, or at the tick after its deadline."""
    bed = second_stage()
    came = bed.testInPandas(
        0,
        frame(
            [
                operation("all", ["a", "b"], 100, 505, 2),
                operation("any", ["a", "b"], 100, 505, 1),
                operation("none", ["a"], 100, 505, 1),
                operation("ever", ["a"], 100, NEVER, 1),
            ],
            [
                hit("any", "b", 200),
                hit("all", "b", 200),
                hit("all", "a", 300),
                hit("any", "a", 250),
            ],
        ),
    )

    outcomes = bed.setWatermark(10_000)

    assert came["entered"].sum() == 4
    assert ended(outcomes) == [
        ("any", "completed", "b", 200),
        ("all", "completed", "a", 300),
        ("none", "expired", None, 510),
    ]
    version, _, data = bed.peekValueState(stages.STATE_NAME, 0)
    waiting, created, events = read_state(version, data)
    assert ([row.id for row in waiting], created, events) == (["ever"], [], [])
    assert stages.key_of_hit("ever", waiting[0].keys[0]) == "a"


def test_early_decisions_drop_copies_in_the_first_stage(batch: list[int]) -> None:
    """The first stage drops its copies in a later micro-batch, not in a repeated one."""
    decided = Decided(DECIDED)
    copies = [copy("x", key, 100, NEVER, keys=["a", "b"]) for key in ("a", "b")]
    twin = copy("x", "b", 150, NEVER)
    operations = [operation("x", ["a", "b"], 100, NEVER, 1), operation("y", ["c"], 100, NEVER, 1)]
    waiting, deciding = first_stage(), second_stage()
    waiting.testInPandas(0, frame([*copies, twin], [event("a", 200)]))
    deciding.testInPandas(0, frame(operations, [hit("x", "a", 200), hit("y", "c", 200)]))
    batch[0] = 1

    hits = waiting.setWatermark(300)
    deciding.setWatermark(300)

    assert passed(hits, "events") == [("x", 200, "a")]
    assert decided.before(1) == set()
    assert decided.before(2) == {("x", 100)}
    assert copies_in(waiting) == [("b", 100), ("b", 150)]
    batch[0] = 2
    again = first_stage()
    again.updateValueState(stages.STATE_NAME, 0, waiting.peekValueState(stages.STATE_NAME, 0))
    again.testInPandas(0, frame([], [event("z", 400)]))
    assert copies_in(again) == [("b", 150)]


def test_decisions_that_were_read_are_removed() -> None:
    """The two newest batches of decisions are kept, because the last one may be repeated."""
    decided = Decided(DECIDED)
    for number in (3, 7, 12):
        decided.write(number, 0, [(f"o{number}", 1)])
        decided.write(number, 1, [(f"p{number}", 1)])
        decided.forget()

    assert decided.before(13) == {("o7", 1), ("p7", 1), ("o12", 1), ("p12", 1)}
    assert decided.before(12) == {("o7", 1), ("p7", 1)}


def copies_in(bed: Any) -> list[tuple[str, int]]:
    """Return key and creation of the copies in a first stage."""
    value = bed.peekValueState(stages.STATE_NAME, 0)
    if value is None:
        return []
    version, _, data = value
    waiting, created, _events = read_state(version, data)
    return sorted((row.keys[0], row.created) for row in (*waiting, *created))


@pytest.mark.parametrize("deadline", [None, 10**9])
def test_the_first_stage_holds_no_more_than_what_is_pending(
    deadline: int | None, batch: list[int]
) -> None:
    """The operations wait for any of two keys, one of which is met."""
    pending, count, batches = 100, 1_000, 10
    end = NEVER if deadline is None else deadline
    waiting, deciding = first_stage(), second_stage()
    held: list[int] = []
    for number in range(batches):
        batch[0] = number
        begin = number * count
        ids = [(f"o{begin + place}", begin + place) for place in range(count)]
        copies = [
            copy(id_, f"{id_} {side}", 1_000 * number + 1, end, keys=keys)
            for id_, _ in ids
            for side, keys in (("a", [f"{id_} a", f"{id_} b"]), ("b", None))
        ]
        events = [event(f"{id_} a", 1_000 * number + 2) for id_, at in ids if at % pending]
        vars(waiting.processor).pop("_seen", None)  # cached per task, that is, per micro-batch
        _pass_on(waiting.testInPandas(0, frame(copies, events)), deciding)
        _pass_on(waiting.setWatermark(1_000 * (number + 1)), deciding)
        deciding.setWatermark(1_000 * (number + 1))
        Decided(DECIDED).forget()
        held.append(len(copies_in(waiting)))

    left = count // pending
    decided_last = count - left
    # Both copies of pending operations, and the other copy of those decided in the last
    # micro-batch.
    assert held == [2 * left * (number + 1) + decided_last for number in range(batches)]


def _pass_on(matched: "DataFrame", deciding: Any) -> None:
    rows = matched[matched["operations"].notna() | matched["events"].notna()]
    if not rows.empty:
        deciding.testInPandas(0, rows)


def test_hits_of_one_operation_are_not_those_of_another() -> None:
    """The concatenation of id and key is unambiguous."""
    bed = second_stage()
    rows = [operation("a", ["bc"], 100, 500, 1), operation("ab", ["c"], 100, 500, 1)]
    bed.testInPandas(0, frame(rows, [hit("ab", "c", 200)]))

    outcomes = bed.setWatermark(10_000)

    assert [row[:3] for row in ended(outcomes)] == [
        ("ab", "completed", "c"),
        ("a", "expired", None),
    ]


def test_the_collector_is_off_during_a_task() -> None:
    """The collector is enabled again for other uses of the worker."""
    stage = stages.DecideOperations(TICK, Unit.MS, Decided(DECIDED))
    bed_of(stage)
    assert not gc.isenabled()

    stage.close()

    assert gc.isenabled()


def test_state_of_another_version_is_refused() -> None:
    """The state is not misread."""
    bed = second_stage()
    bed.testInPandas(0, frame([operation("x", ["a"], 100, 500, 1)], []))
    _, settled, data = bed.peekValueState(stages.STATE_NAME, 0)
    bed.updateValueState(stages.STATE_NAME, 0, (STATE_VERSION + 1, settled, data))

    with pytest.raises(AiowheelError, match="state of version 3, this release reads 2"):
        bed.setWatermark(10_000)


@pytest.mark.parametrize("unit", Unit, ids=str)
@pytest.mark.parametrize("watermark_ms", [1, 2, 999, 1_000, 1_001, 123_456_789])
def test_rows_after_the_frontier_are_not_late(unit: Unit, watermark_ms: int) -> None:
    """Other rows are late: Spark drops rows at or before its watermark, in microseconds."""
    settled = _event_time.frontier(watermark_ms, unit)

    last, first = _event_time.timestamps([settled, settled + 1], unit).astype(int).tolist()

    assert last <= watermark_ms * 1_000 < first


@pytest.mark.parametrize("unit", Unit, ids=str)
def test_a_flush_settles_all(unit: Unit) -> None:
    """Deadlines after the time of the flush are settled too."""
    assert _event_time.frontier(_event_time.FLUSH_MS - 31_536_000_000, unit) == NEVER - 1


def test_a_row_at_time_0_is_not_late() -> None:
    """The watermark of a stream without rows is 0, and would make it late."""
    assert _event_time.timestamps([0], Unit.S).astype(int).tolist() == [1_000]
    assert _event_time.frontier(0, Unit.S) == -1
