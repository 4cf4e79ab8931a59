"""A quiet Spark session that ends when it is told to and leaves nothing behind. Rank 5."""

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.pipeline.java import find_java, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The last two lines: the gateway resets the root level, and says so, unless it has a logger.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@contextlib.contextmanager
def open_session(
    app_name: str = "aiowheel",
    *,
    master: str = "local[*]",
    driver_memory: str = "2g",
    java_options: str = "",
    conf: Mapping[str, str] | None = None,
) -> Generator["SparkSession"]:
    """Start Spark, hand out the session, and stop its JVM on leaving.

    Temporary files live in one folder of our own and go with the session. Starting takes 4 to 7 s.

    Args:
        app_name: Shown in Spark's own pages.
        master: Any Spark master; ``local[*]`` uses every core of this machine.
        driver_memory: Heap of the driver, which on ``local`` is all there is; ``512m``, ``2g``.
        java_options: Further flags for the driver's JVM.
        conf: Spark settings, stronger than those made here.

    Raises:
        MissingExtraError: PySpark or a Java of 17 or later is not installed.
        AiowheelError: Another Spark session runs in this process.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("spark") from error
    if SparkContext._active_spark_context is not None:
        raise AiowheelError("a Spark session is already open in this process: close it first")

    folder = Path(tempfile.mkdtemp(prefix="aiowheel-spark-"))
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, folder)
        stack.enter_context(_environment(folder))
        _silence()
        builder = SparkSession.builder.master(master).appName(app_name)
        options = f"-Duser.timezone=UTC -Djava.io.tmpdir={folder} {java_options}".strip()
        settings = _settings(folder, master, driver_memory, options) | dict(conf or {})
        for name, value in settings.items():
            builder = builder.config(name, value)
        atexit.register(_stop_jvm)  # for whoever leaves the process without leaving the block
        stack.callback(atexit.unregister, _stop_jvm)
        stack.callback(_stop_jvm)
        yield builder.getOrCreate()


def _settings(folder: Path, master: str, driver_memory: str, options: str) -> dict[str, str]:
    cores = str(max(2, os.cpu_count() or 2))
    settings = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": options,
        "spark.default.parallelism": cores,
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


@contextlib.contextmanager
def _environment(folder: Path) -> Generator[None]:
    (folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    ours = {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "PYSPARK_PYTHON": sys.executable,  # else workers run the first python3 on PATH
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",  # else a warning about the host's name
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _silence() -> None:
    # On each SQL error PySpark logs a line of JSON besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")


def _stop_jvm() -> None:
    """Stop the session and wait for its JVM; a later session starts a fresh one."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context.stop()
    if gateway is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        jvm = cast("subprocess.Popen[bytes]", gateway.proc)  # pyright: ignore[reportUnknownMemberType]
        if jvm.stdin is not None:
            jvm.stdin.close()  # the JVM ends with its standard input
        jvm.wait(timeout=20)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
