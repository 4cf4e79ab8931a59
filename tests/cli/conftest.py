"""The commands in a process in which no Spark runs."""

import signal
import sys
from collections.abc import Iterator

import pytest

from aiowheel._signals import handled_by


@pytest.fixture(autouse=True)
def no_open_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the Spark session of the tests of the jobs, which stays open until the last test.

    A command would use that session: it would refuse each master, and an interrupt would end Java.
    """
    if "pyspark" in sys.modules:
        monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
        monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with handled_by(signal.default_int_handler, signal.SIGINT):
        yield
