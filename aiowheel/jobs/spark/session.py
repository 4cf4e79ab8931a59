"""A quiet Spark session that ends when it is told to and leaves nothing behind. Rank 5."""

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.jobs.spark.connectors import missing_connectors
from aiowheel.jobs.spark.failures import explain_failure
from aiowheel.jobs.spark.java import find_java, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The last two lines: the gateway resets the root level, and says so, unless it has a logger.
_LOG4J = """\
rootLogger.level = @level@
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_LOG = "spark.log"
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^:,/]+:\d+(,[^:,/]+:\d+)*"
    r"|yarn|k8s://.+"
)
_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# A tenth less time for a large job than Java's first choice, whose pauses are shorter. The latter
# is named because Java refuses to start with two, and the environment may ask for it.
_THROUGHPUT = "-XX:-UseG1GC -XX:+UseParallelGC"
_ANSWER_SECONDS = 5.0
_LAST_SECONDS = 20.0


@contextlib.contextmanager
def open_session(
    app_name: str = "aiowheel",
    *,
    master: str = "local[*]",
    driver_memory: str = "2g",
    java_options: str = _THROUGHPUT,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Generator["SparkSession"]:
    """Start Spark, hand out the session, and stop its JVM on leaving.

    Temporary files live in one folder of our own and go with the session. Starting takes 4 to 7 s.

    Args:
        app_name: Shown in Spark's own pages.
        master: Any Spark master; ``local[*]`` uses every core of this machine.
        driver_memory: Heap of the driver, which on ``local`` is all there is; ``512m``, ``2g``.
        java_options: Flags for the driver's JVM; default: its parallel collector.
        conf: Spark settings, stronger than those made here.
        verbose: Let Spark log its warnings on stderr; else it is silent.

    Raises:
        MissingExtraError: PySpark or a Java of 17 or later is not installed.
        BadInputError: *master* is no Spark master.
        AiowheelError: Another Spark session runs in this process, the master does not answer, or
            Java or Spark refuse to start.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("spark") from error
    if SparkContext._active_spark_context is not None:
        raise AiowheelError("a Spark session is already open in this process: close it first")

    _check_master(master)
    folder = Path(tempfile.mkdtemp(prefix="aiowheel-spark-"))
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, folder)
        stack.enter_context(_environment(folder, master, verbose=verbose))
        _silence()
        builder = SparkSession.builder
        options = f"-Duser.timezone=UTC -Djava.io.tmpdir={folder} {java_options}".strip()
        settings = {"spark.master": master, "spark.app.name": app_name}
        settings |= _settings(folder, master, driver_memory, options) | dict(conf or {})
        for name, value in settings.items():
            builder = builder.config(name, value)
        atexit.register(_stop_jvm)  # for whoever leaves the process without leaving the block
        stack.callback(atexit.unregister, _stop_jvm)
        stack.callback(_stop_jvm)
        try:
            with _interrupts_held_back():
                _start_java(settings)
                spark = builder.getOrCreate()
            # When the JVM dies, the listener for its accumulators would print a traceback.
            listener: Any = spark.sparkContext._accumulatorServer
            listener.handle_error = _say_nothing
        except Exception as error:
            raise _why_it_did_not_start(error, folder) from error
        try:
            yield spark
        except KeyboardInterrupt:
            _end_jvm()  # a call is under way on the connection to it: it cannot be asked to stop
            raise


@contextlib.contextmanager
def _interrupts_held_back() -> Generator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block: a JVM half started would stay.

    A second one does not wait. PySpark's own handler of SIGINT, which talks to the JVM in the
    middle of whatever is said to it, is taken away again.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    with handled_by(hold, signal.SIGINT, signal.SIGTERM):
        yield
    for number in held:
        signal.raise_signal(number)


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM in a session of its own, which the next Spark session in this process uses.

    So a signal to our process group, as a terminal or a supervisor sends it, ends this process
    by the door while the JVM still answers. The JVM ends with its standard input.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll([*settings.items()])
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def _check_master(master: str) -> None:
    """Refuse what is no master, and a standalone one that nobody serves.

    Spark itself would look for the latter for a minute.
    """
    if _MASTER.fullmatch(master) is None:
        raise BadInputError(
            f"--master: want local[*], local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, "
            f"yarn or k8s://..., got {master!r}"
        )
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AiowheelError(f"no Spark master answers at {address}: {reason}") from error


def _why_it_did_not_start(error: Exception, folder: Path) -> AiowheelError:
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return explain_failure(error)
    log = folder / _LOG
    told = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if missing := missing_connectors(told):
        return AiowheelError(missing)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    # Java's last word is a stack, its first may be the frame around the reason.
    reason = " ".join(line for line in lines[:2] if not line.startswith("at "))
    return AiowheelError(f"Java could not start Spark: {reason or 'it printed why above'}")


def _settings(folder: Path, master: str, driver_memory: str, options: str) -> dict[str, str]:
    import pyspark

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
    if not pyspark.__version__.startswith("4.0."):  # there it has another name
        # Spark's first choice runs `readlink` for every file of a checkpoint, in a process of its
        # own: eighty processes a micro-batch.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    if _is_on_this_machine(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if paths := os.environ.get("PYTHONPATH"):  # else a package that is not installed stays here
        settings["spark.executorEnv.PYTHONPATH"] = paths
    return settings


def _is_on_this_machine(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


@contextlib.contextmanager
def _environment(folder: Path, master: str, *, verbose: bool) -> Generator[None]:
    log4j = _LOG4J.replace("@level@", "warn" if verbose else "off")
    (folder / "log4j2.properties").write_text(log4j, encoding="utf-8")
    ours = {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "PYSPARK_PYTHON": sys.executable,  # else workers run the first python3 on PATH
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "AIOWHEEL_SPARK_LOG": "" if verbose else str(folder / _LOG),
    }
    if _is_on_this_machine(master):
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"  # else a warning about the host's name
    if master.startswith("local-cluster"):
        ours["SPARK_HOME"] = str(_movable_spark(folder))
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


def _movable_spark(folder: Path) -> Path:
    """A SPARK_HOME of links: workers of a local cluster write into it, and nowhere else."""
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in {"bin", "jars", "python", "sbin", "RELEASE"}:
            (home / part.name).symlink_to(part)
    return home


def _silence() -> None:
    # On each SQL error PySpark logs a line of JSON besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # On a job given up by Ctrl-C, Py4J logs a traceback on the root logger itself, and another one.
    logging.getLogger().addFilter(_is_no_interrupt)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")


def _say_nothing(*_: object) -> None:
    pass


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.msg != "KeyboardInterrupt while sending command."


def _stop_jvm() -> None:
    """Stop the session and wait for its JVM; a later session starts a fresh one."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        try:
            context.stop()
        except Exception:  # the JVM has died; the failure that came of it is told already
            _end_jvm()
            return
    if gateway is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        jvm = cast("subprocess.Popen[bytes]", gateway.proc)  # pyright: ignore[reportUnknownMemberType]
        if jvm.stdin is not None:
            jvm.stdin.close()  # the JVM ends with its standard input
        jvm.wait(_LAST_SECONDS)


def _end_jvm() -> None:
    """Stop the JVM without asking it; its executors end with it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    if gateway is None:
        return
    jvm = cast("subprocess.Popen[bytes]", gateway.proc)  # pyright: ignore[reportUnknownMemberType]
    jvm.terminate()
    try:
        jvm.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
