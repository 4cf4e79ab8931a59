"""JSON values of a topic: which escapes are characters."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.one_build]


def test_half_a_character_is_no_text(spark: "SparkSession") -> None:
    """Spark would replace it by a question mark, and so give two keys the same name."""
    from aiowheel.jobs.schemas import TOUCHES
    from aiowheel.jobs.spark.values import parse_json

    good = {
        r"\u00e9": "\u00e9",
        r"\ud83d\ude00": "\U0001f600",
        r"\\ud800": r"\ud800",
        r"\\\\ud800": r"\\ud800",
        r"\"\\udc00": r'"\udc00',
        r"a\u0000b": "a\0b",
    }
    bad = [r"\ud800", r"\uDBFFx", r"\udc00", r"\ude00\ud83d", r"\ud83d\ud83d\ude00", r"\\\ud800"]
    values = [f'{{"key": "{key}", "t": 1}}' for key in [*good, *bad]]
    rows = spark.createDataFrame([(bytearray(value.encode()),) for value in values], "value binary")

    found = {
        row["text"]: (row["key"], row["unread"]) for row in parse_json(rows, TOUCHES).collect()
    }

    texts = [*good.values(), *(None for _ in bad)]
    assert found == {value: (text, text is None) for value, text in zip(values, texts, strict=True)}
