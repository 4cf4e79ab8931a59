"""Rows of a shard packed into one value, and unpacked."""

import pytest

pa = pytest.importorskip("pyarrow")

from aiowheel.jobs.spark.packs import pack, pack_rows, unpack  # noqa: E402 - needs pyarrow

pytestmark = pytest.mark.one_build


def test_rows_are_packed_by_shard() -> None:
    """Rows are packed per batch; an empty batch makes no pack, and the column order is kept."""
    rows = pa.RecordBatch.from_pydict(
        {
            "shard": pa.array([7, 0, 7], pa.int32()),
            "key": ["a", "b", None],
            "time": [5, 9, 3],
            "keys": [["a", "é"], [], None],
        }
    )

    packed, again = pack_rows([rows, rows.slice(0, 0), rows.slice(2)])

    assert packed.schema.names == ["shard", "latest", "count", "number", "pack"]
    zero, seven = sorted(packed.to_pylist(), key=lambda row: int(row["shard"]))
    assert (zero["latest"], zero["count"]) == (9, 1)
    assert list(unpack(zero["pack"])) == [("b", 9, [])]
    assert (seven["latest"], seven["count"]) == (5, 2)
    assert sorted(unpack(seven["pack"]), key=str) == [("a", 5, ["a", "é"]), (None, 3, None)]
    assert list(unpack(again["pack"][0].as_py())) == [(None, 3, None)]
    assert [*packed["number"].to_pylist(), *again["number"].to_pylist()] == [0, 1, 2]


def test_a_column_determines_which_rows_count() -> None:
    """The copies of an operation have no keys, and do not count."""
    rows = pa.RecordBatch.from_pydict({"shard": [0, 0], "time": [5, 9], "keys": [["a"], None]})

    (packed,) = pack_rows([rows], counted="keys")

    assert packed["count"].to_pylist() == [1]


def test_one_reader_holds_several_packs() -> None:
    """The state of a shard has several packs, one of them possibly without rows."""
    ids, times = pa.schema({"id": pa.string()}), pa.schema({"t": pa.int64()})
    source = pa.BufferReader(
        pack(ids, [("x",), ("y",)]) + pack(times, []) + pack(times, [(2**62,)])
    )

    assert [list(unpack(source)) for _ in range(3)] == [[("x",), ("y",)], [], [(2**62,)]]
