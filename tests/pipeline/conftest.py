"""One Spark session for all tests of the jobs, and the reference data.

Real data lies beside the repository in `../shared/data`, or where AIOWHEEL_DATA says.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.errors import MissingExtraError
from aiowheel.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skip where Spark cannot run, with the reason."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        pytest.skip("PySpark or pyarrow is not installed")
    try:
        find_java()
    except MissingExtraError:
        pytest.skip("no Java of version 17 or later is found")


@pytest.fixture(scope="session")
def spark(needs_spark: None) -> Iterator["SparkSession"]:
    """A local session, started once."""
    from aiowheel.pipeline.session import open_session

    with open_session("tests", driver_memory="1g", java_options=QUICK_JVM) as session:
        yield session


@pytest.fixture
def one_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use the session of the tests: a second one cannot be opened beside it."""
    from aiowheel.pipeline import session

    monkeypatch.setattr(session, "open_session", lambda *_, **__: nullcontext(spark))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the reference data."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("AIOWHEEL_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}: set AIOWHEEL_DATA")
    return folder
