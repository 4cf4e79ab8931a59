"""A Spark session: the user's open one, or a quiet one that leaves no files behind. Rank 5."""

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.jobs.spark.connectors import missing_connectors
from aiowheel.jobs.spark.environment import ANY_CORE, LOG, is_on_this_machine, java_environment
from aiowheel.jobs.spark.failures import explain_failure, texts_kept
from aiowheel.jobs.spark.java import java_answer
from aiowheel.jobs.spark.servers import silent_servers
from aiowheel.jobs.spark.stream_settings import STATE_STORE

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^:,/]+:\d+(,[^:,/]+:\d+)*"
    r"|yarn|k8s://.+"
)
_PARTITIONS = "spark.sql.shuffle.partitions"
_LEAST_ON_CLUSTER = 16
_LISTINGS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# The parallel collector takes a tenth less time for a large job than G1, whose pauses are shorter.
# The others are switched off by name because Java refuses to start with two collectors, and the
# environment may select one.
PARALLEL_GC = "-XX:-UseG1GC -XX:-UseSerialGC -XX:-UseZGC -XX:-UseShenandoahGC -XX:+UseParallelGC"
_LAST_SECONDS = 20.0


@contextlib.contextmanager
def open_session(
    app_name: str = "aiowheel",
    *,
    master: str | None = None,
    driver_memory: str = "2g",
    java_options: str = PARALLEL_GC,
    conf: Mapping[str, str] | None = None,
    connectors: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Generator["SparkSession"]:
    """Yield a Spark session, and stop on leaving whatever was started for it.

    A session that is open in this process is yielded and stays open. Under ``spark-submit`` the
    session uses the existing JVM. Otherwise a JVM is started, which takes 4 to 7 s. Temporary files
    are kept in one folder, which is removed with the session. An error of Spark that leaves the
    block keeps its text; its other methods need the session.

    Only *master* and *conf* override the user's configuration: the settings of ``spark-submit``,
    ``PYSPARK_SUBMIT_ARGS`` and the files in ``SPARK_CONF_DIR`` or ``$SPARK_HOME/conf``. All other
    values are defaults.

    Args:
        app_name: The name in Spark's web pages; a default.
        master: Any Spark master; by default ``local[*]``, every core of this machine.
        driver_memory: Heap of the driver, which on ``local`` runs all tasks; a default.
        java_options: Flags for the driver's JVM; by default they select the parallel collector.
        conf: Spark settings.
        connectors: Settings from `connector_settings`; defaults.
        verbose: Whether Spark logs its warnings on stderr; otherwise it is silent, unless the
            user's configuration folder has a ``log4j2.properties``.

    Raises:
        MissingExtraError: PySpark, or a Java of version 17 or later, is not installed.
        BadInputError: *master* is not a Spark master.
        AiowheelError: *master* or *conf* cannot change the open session, ``SPARK_REMOTE`` requests
            Spark Connect, the master is not reachable, or Java or Spark fails to start.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("spark") from error
    given = dict(conf or {}) | ({} if master is None else {"spark.master": master})
    if SparkContext._active_spark_context is not None:
        _refuse_changes(given)
        yield SparkSession.builder.getOrCreate()
        return
    if os.environ.get("SPARK_REMOTE"):
        raise AiowheelError("SPARK_REMOTE is set: the jobs need a driver, not Spark Connect")
    if master is not None:
        _check_master(master)
    folder = Path(tempfile.mkdtemp(prefix="aiowheel-spark-"))
    with contextlib.ExitStack() as stack, texts_kept():
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _silence_loggers()
        place = _quoted(f"-Djava.io.tmpdir={folder}")
        options = f"-Duser.timezone=UTC {place} {java_options}".strip()
        defaults = _defaults(folder, app_name) | dict(connectors or {})
        of_java = {
            "spark.driver.memory": driver_memory,
            "spark.driver.extraJavaOptions": options,
        }
        environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
        has_java = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
        if not has_java:
            environment |= java_environment(folder, defaults | of_java, given, verbose=verbose)
        jvm = None
        try:
            # Only during startup, so that programs started later have the user's environment.
            with _environment_set(environment), _interrupts_delayed() as still_delayed:
                if not has_java:
                    jvm = _start_java(given)
                atexit.register(stack.close)  # in case the process ends inside the block
                stack.callback(atexit.unregister, stack.close)
                stack.callback(_stop, jvm)
                SparkContext._ensure_initialized()
                settings = _settings(defaults, given)
                SparkContext.getOrCreate(settings)  # sets a SIGINT handler of PySpark's
                with still_delayed():
                    spark = SparkSession.builder.config(conf=settings).getOrCreate()
            _prepare(spark, settings)
        except AiowheelError:
            raise
        except Exception as error:
            raise _startup_error(error, folder) from error
        with _abandoned_at_interrupts(jvm):
            yield spark


@contextlib.contextmanager
def changed_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Generator[None]:
    """Change settings of the session inside the block, and restore them after it."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def _refuse_changes(given: Mapping[str, str]) -> None:
    if given:
        raise AiowheelError(
            f"a Spark session is open in this process: it takes no other {', '.join(given)}"
        )


@contextlib.contextmanager
def _interrupts_delayed() -> Generator[Callable[[], AbstractContextManager[None]]]:
    """Delay SIGINT and SIGTERM until the block ends, because a half started JVM would keep running.

    A second signal is not delayed. PySpark's own SIGINT handler, which would use the busy
    connection to the JVM, is removed; call the value of the block for the rest of it, after PySpark
    has set that handler.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    with handled_by(hold, signal.SIGINT, signal.SIGTERM):
        yield partial(handled_by, hold, signal.SIGINT)
    for number in held:
        signal.raise_signal(number)


@contextlib.contextmanager
def _abandoned_at_interrupts(jvm: "subprocess.Popen[bytes] | None") -> Generator[None]:
    """Abandon the session at an interrupt: its connection is busy and cannot take another call.

    *jvm* is terminated in the handler, because `toArrow`, once interrupted, waits for the end of
    its job.
    """
    is_interrupted = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        logging.getLogger().addFilter(_is_not_failed_call)
        _abandon_session(jvm)
        raise KeyboardInterrupt

    with contextlib.ExitStack() as handlers:
        handlers.callback(logging.getLogger().removeFilter, _is_not_failed_call)
        if jvm is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            handlers.enter_context(handled_by(interrupt, signal.SIGINT))
        try:
            yield
        except KeyboardInterrupt:
            _abandon_session(jvm)
            raise
        except Exception as error:
            if is_interrupted:  # a call has met the end of Java
                raise KeyboardInterrupt from error
            raise


def _start_java(given: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the JVM in its own process session; the next Spark session of this process uses it.

    So a signal to the process group, sent by a terminal or a supervisor, ends this process cleanly
    while the JVM still responds. The JVM ends when its standard input is closed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll([*given.items()])
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return cast("subprocess.Popen[bytes]", gateway.proc)  # pyright: ignore[reportUnknownMemberType]


def _check_master(master: str) -> None:
    """Raise if *master* is not a master, or is a standalone master that is not reachable.

    Spark itself would retry a standalone master for a minute. Of several masters, separated by
    commas, all but one may be down.
    """
    if _MASTER.fullmatch(master) is None:
        raise BadInputError(
            f"--master must be local[*], local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, "
            f"yarn or k8s://..., got {master!r}"
        )
    if not master.startswith("spark://"):
        return
    if reasons := silent_servers(master.removeprefix("spark://")):
        raise AiowheelError(f"no Spark master answers at {'; '.join(reasons)}")


def _startup_error(error: Exception, folder: Path) -> AiowheelError:
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return explain_failure(error)
    log = folder / LOG
    if not log.exists():  # Java wrote on stderr
        return AiowheelError("Java could not start Spark: the reason is printed above")
    printed = log.read_text(encoding="utf-8", errors="replace")
    if missing := missing_connectors(printed):
        return AiowheelError(missing)
    # Java's last output is a stack trace; its first line may be the frame around the reason.
    reason = " ".join(line for line in java_answer(printed)[:2] if not line.startswith("at "))
    return AiowheelError(
        f"Java could not start Spark: {reason or 'it ended without a word, as if it was killed'}"
    )


def _defaults(folder: Path, app_name: str) -> dict[str, str]:
    """Return defaults for settings that the user has not set."""
    import pyspark

    defaults = {
        "spark.app.name": app_name,
        "spark.master": ANY_CORE,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **STATE_STORE,
        # A micro-batch then writes its changes instead of whole files of the state store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if not pyspark.__version__.startswith("4.0."):  # in 4.0 the class has another name
        # Spark's default runs `readlink` for every file of a checkpoint in a new process: eighty
        # processes per micro-batch.
        defaults["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    if paths := os.environ.get("PYTHONPATH"):  # executors need packages that are not installed
        defaults["spark.executorEnv.PYTHONPATH"] = paths
    return defaults


def _settings(defaults: Mapping[str, str], given: Mapping[str, str]) -> "SparkConf":
    """Return the settings of the session: *given*, then those of the JVM, then *defaults*."""
    from pyspark import SparkConf

    settings = SparkConf().setAll([*given.items()])
    for name, value in defaults.items():
        settings.setIfMissing(name, value)
    master = str(settings.get("spark.master"))
    _check_master(master)
    if is_on_this_machine(master):
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            settings.setIfMissing(name, "127.0.0.1")
        # By default Spark lists each given file in a task of its own, which takes a fifth of a run
        # over 4,000 small files.
        settings.setIfMissing(_LISTINGS, "8")
    return settings


def _prepare(spark: "SparkSession", settings: "SparkConf") -> None:
    """Change what Spark can change only in a session that runs."""
    if not settings.contains(_PARTITIONS):
        spark.conf.set(_PARTITIONS, _partitions(spark))
    # If the JVM dies, the accumulator listener would print a traceback.
    listener: Any = spark.sparkContext._accumulatorServer
    listener.handle_error = lambda *_: None


def _partitions(spark: "SparkSession") -> int:
    """Return the number of cores, which a cluster may not have reported yet."""
    context = spark.sparkContext
    least = 2 if re.match(r"local(\[|$)", str(context.master)) else _LEAST_ON_CLUSTER
    return max(least, context.defaultParallelism)


def parallelism(spark: "SparkSession") -> int:
    """Return how many tasks *spark* runs at a time.

    Spark Connect does not report this; there it is the number of shuffle partitions.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:
        return int(str(spark.conf.get(_PARTITIONS)))


def _quoted(option: str) -> str:
    """Return an option of Java as one word for Spark, which splits the options at blanks."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextlib.contextmanager
def _environment_set(ours: Mapping[str, str]) -> Generator[None]:
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


def _silence_loggers() -> None:
    # PySpark logs each SQL error as a line of JSON in addition to raising it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # When Ctrl-C cancels a job, Py4J logs a traceback on the root logger itself, and another one.
    logging.getLogger().addFilter(_is_not_interrupt)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")


def _is_not_failed_call(record: logging.LogRecord) -> bool:
    # Py4J logs on the root logger that a call of PySpark's clean-up meets the end of Java.
    return record.msg != "Exception while sending command."


def _is_not_interrupt(record: logging.LogRecord) -> bool:
    return record.msg != "KeyboardInterrupt while sending command."


def _stop(jvm: "subprocess.Popen[bytes] | None") -> None:
    """Stop the session, and *jvm* if it was started for it; a later session starts a new one."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        try:
            context.stop()
        except Exception:  # the JVM has died; the error that it caused is reported already
            _abandon_session(jvm)
            return
    if gateway is not None and jvm is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        if jvm.stdin is not None:
            jvm.stdin.close()  # the JVM ends when its standard input is closed
        jvm.wait(_LAST_SECONDS)


def _abandon_session(jvm: "subprocess.Popen[bytes] | None") -> None:
    """Detach from the session and terminate *jvm* without a call; its executors end with it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    if jvm is None:
        return
    jvm.terminate()
    try:
        jvm.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    if jvm.stdin is not None:
        jvm.stdin.close()
