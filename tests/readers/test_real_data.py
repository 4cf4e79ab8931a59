"""Published arrivals of a production service; tests/jobs reads the other data sets."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from aiowheel.readers import Inputs, TimedRows, TimeFormat, Unit, time_parser

pytestmark = pytest.mark.one_build

DATA = Path(os.environ.get("AIOWHEEL_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.mark.parametrize(("name", "count"), [("conv", 19_366), ("code", 8_819)])
def test_arrivals_with_seven_digits_of_a_second(name: str, count: int) -> None:
    """CRLF, no line end after the last row, no zone; times increase strictly if read exactly."""
    file = DATA / f"azure-llm-2023/AzureLLMInferenceTrace_{name}.csv.gz"
    if not file.exists():
        pytest.skip(f"no reference data at {DATA}: set AIOWHEEL_DATA")
    rows = TimedRows(
        Inputs([str(file)]),
        key="ContextTokens",
        time="TIMESTAMP",
        parse_time=time_parser(TimeFormat.ISO8601, Unit.NS),
    )

    times = [time for batch in rows.batches() for time in batch.times]

    assert (rows.accepted, rows.rejected, rows.irregular) == (count, 0, 0)
    assert all(earlier < later for earlier, later in pairwise(times))
    assert times[0] // 10**9 // 86_400 == 19_677  # 2023-11-16
