"""One Spark session for all tests of the jobs, and the reference data.

Real data is in `../shared/data` beside the repository, or in the folder AIOWHEEL_DATA.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.errors import MissingExtraError
from aiowheel.jobs.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTS = [  # view, timeout in seconds, idle events, sha256 of the "fire<TAB>key" lines
    ("nasa", 30, 8_020, "de305a7e321722b41ceebc17ca2ec2fe7460dbc703dc50202cfd0401ba099e05"),
    ("nasa", 300, 3_904, "14e3d3b8428d463812185920f242805a15f96218efda6e566153cede90109256"),
    ("nasa", 1800, 2_989, "b616f3935c7b8feb8368309889fda892e3f4d67e4d528a5a8192fe43457a4d65"),
    ("trace", 30, 6_958, "a86420506ef65894994ed49a7b16dd62312084102a44af536dd42af62584fb84"),
    ("trace", 300, 6_958, "ad63ae44fe9e94b975eba73cd24f366455b004c7284e07f22c9496ff869aa08a"),
    ("trace", 1800, 6_958, "0c74e339755bc6e8c83d5213a5d7a79738d634994ac48d5966ddfc990c3a8169"),
    ("pod", 30, 2_065, "adae49b14e4ab164624053b6e6f6a4dd559895b097dd107bd894e91468feb9a7"),
    ("pod", 300, 804, "bc243c3bb83e6f5ebcd2136c747c9d8c1d03e4880880608d86bed25f25246395"),
    ("pod", 1800, 140, "c8fe7a6b8a07a9ae3169ccce32fcc341d5c2310d152a970dd46e438473ec00b7"),
    ("logpod", 30, 2_022, "71d9667bcfb483716bfae63da4c60a77662b9e298b6a351b78bc87235af9a8fa"),
    ("logpod", 300, 776, "5e9e41221b92b1173dc49c48223671f8141951b852992ea378f988cc67fdf7ba"),
    ("logpod", 1800, 135, "6772bfb146f5bf1889908ec21367cb6be7bde905b876d46d9b3d8fd08c11b615"),
]
ODD = "[1] {a,b} * ? x\\y 50%"  # a folder name with pattern characters and with escapes of URLs
TEMPORARY = "tmp" if os.name == "nt" else 'a "b" c'  # the folder of Spark's temporary files
# With one compiler, Java 17 limits compiled code to 48 MiB. Hundreds of tests need 73, and without
# room a thread of Java would search for unused code all the time.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)


@pytest.hookimpl(tryfirst=True)  # before the tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that uses the Spark session without a mark for it.

    It would start a second and a third Spark beside that of the marked tests.
    """
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        starts_spark = "spark" in getattr(item, "fixturenames", ())
        if starts_spark and marks.isdisjoint({"spark", "spark_cluster", "kafka"}):
            raise pytest.UsageError(f"{item.nodeid} starts Spark and needs the mark spark")


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skip with the reason if Spark cannot run."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        pytest.skip("PySpark or pyarrow is not installed")
    try:
        find_java()
    except MissingExtraError:
        pytest.skip("no Java of version 17 or later is found")


@pytest.fixture(scope="session")
def spark(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Yield a local session, started once."""
    from aiowheel.jobs.spark.session import open_session

    folder = tmp_path_factory.mktemp("spark") / TEMPORARY
    folder.mkdir()
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(folder))
            session = open_session("tests", driver_memory="1g", java_options=QUICK_JVM)
            spark = stack.enter_context(session)
        yield spark
    assert list(folder.iterdir()) == []


@pytest.fixture
def one_session(spark: "SparkSession") -> None:
    """Let the commands use the open session of the tests."""


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of the reference data."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("AIOWHEEL_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}: set AIOWHEEL_DATA")
    return folder


def assert_nothing_lost(report: Mapping[str, Any], out: Path, rows: int) -> None:
    """Check that a run of `aiowheel purgatory` over *rows* rows lost no row.

    Each row is an operation, an event or a reject; each operation has an outcome or is pending.
    """
    from aiowheel.jobs.schemas import OUTCOMES, REJECTS
    from aiowheel.jobs.spark.sinks import read_folder

    outcomes = read_folder(out / "outcomes", OUTCOMES).num_rows
    rejects = read_folder(out / "rejects", REJECTS).num_rows
    assert report["operations"] + report["events"] + rejects == rows
    assert report["rejected"] == rejects
    assert report["completed"] + report["expired"] == outcomes
    assert outcomes + report["pending"] == report["operations"]
    assert not (out / ".purgatory.tmp").exists()
