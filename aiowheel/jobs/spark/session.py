"""A Spark session: the user's where there is one, else a quiet one that leaves nothing. Rank 5."""

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
    from pyspark import SparkConf
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
_MASTER_FLAG = re.compile(r"--master[ =](\S+)")
_MASTER_LINE = re.compile(r"^\s*spark\.master[\s=:]+(\S+)", re.MULTILINE)
_ANY_CORE = "local[*]"
_DEFAULTS_FILE = "spark-defaults.conf"
_PARTITIONS = "spark.sql.shuffle.partitions"
_LEAST_ON_CLUSTER = 16
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
    master: str | None = None,
    driver_memory: str = "2g",
    java_options: str = _THROUGHPUT,
    conf: Mapping[str, str] | None = None,
    connectors: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Generator["SparkSession"]:
    """Give a Spark session, and end what was started for it on leaving.

    A session that is open in this process is given as it is, and stays open. Under ``spark-submit``
    the session runs in the JVM that is there. Else a JVM is started, which takes 4 to 7 s.
    Temporary files live in one folder that goes with the session.

    Only *master* and *conf* override what the user has configured: the settings of
    ``spark-submit``, ``PYSPARK_SUBMIT_ARGS`` and the files in ``SPARK_CONF_DIR``, or in
    ``$SPARK_HOME/conf``. All other values are defaults.

    Args:
        app_name: Shown in Spark's own pages; a default.
        master: Any Spark master; by default ``local[*]``, every core of this machine.
        driver_memory: Heap of the driver, which on ``local`` is all there is; a default.
        java_options: Flags for the driver's JVM; a default, its parallel collector.
        conf: Spark settings.
        connectors: Of `connector_settings`; defaults.
        verbose: Let Spark log its warnings on stderr; else it is silent, unless the user's folder
            has a ``log4j2.properties``.

    Raises:
        MissingExtraError: PySpark or a Java of 17 or later is not installed.
        BadInputError: *master* is no Spark master.
        AiowheelError: *master* or *conf* cannot change the session that is open, ``SPARK_REMOTE``
            asks for Spark Connect, the master does not answer, or Java or Spark refuse to start.
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
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, folder)
        _silence()
        options = f"-Duser.timezone=UTC -Djava.io.tmpdir={folder} {java_options}".strip()
        defaults = _defaults(folder, app_name) | dict(connectors or {})
        of_java = {
            "spark.driver.memory": driver_memory,
            "spark.driver.extraJavaOptions": options,
        }
        environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
        has_java = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
        if not has_java:
            environment |= _java_environment(folder, defaults | of_java, given, verbose=verbose)
        jvm = None
        try:
            # Only while it starts: a program that is started later has the user's settings.
            with _environment_set(environment), _interrupts_held_back():
                if not has_java:
                    jvm = _start_java(given)
                atexit.register(stack.close)  # for a process that ends inside the block
                stack.callback(atexit.unregister, stack.close)
                stack.callback(_stop, jvm)
                SparkContext._ensure_initialized()
                settings = _settings(defaults, given)
                spark = SparkSession.builder.config(conf=settings).getOrCreate()
            if not settings.contains(_PARTITIONS):
                spark.conf.set(_PARTITIONS, _partitions(spark))
            # When the JVM dies, the listener for its accumulators would print a traceback.
            listener: Any = spark.sparkContext._accumulatorServer
            listener.handle_error = _say_nothing
        except AiowheelError:
            raise
        except Exception as error:
            raise _why_it_did_not_start(error, folder) from error
        try:
            yield spark
        except KeyboardInterrupt:
            _forget(jvm)  # a call is under way on the connection to it: it cannot take another call
            raise


def _refuse_changes(given: Mapping[str, str]) -> None:
    if given:
        raise AiowheelError(
            f"a Spark session is open in this process: it takes no other {', '.join(given)}"
        )


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


def _start_java(given: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the JVM in a session of its own, which the next Spark session in this process uses.

    So a signal to our process group, as a terminal or a supervisor sends it, ends this process
    by the door while the JVM still answers. The JVM ends with its standard input.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll([*given.items()])
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return cast("subprocess.Popen[bytes]", gateway.proc)  # pyright: ignore[reportUnknownMemberType]


def _check_master(master: str) -> None:
    """Refuse what is no master, and a standalone one that does not answer.

    Spark itself would look for the latter for a minute.
    """
    if _MASTER.fullmatch(master) is None:
        raise BadInputError(
            f"--master must be local[*], local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, "
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
    printed = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if missing := missing_connectors(printed):
        return AiowheelError(missing)
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    # Java's last word is a stack, its first may be the frame around the reason.
    reason = " ".join(line for line in lines[:2] if not line.startswith("at "))
    return AiowheelError(f"Java could not start Spark: {reason or 'it printed why above'}")


def _defaults(folder: Path, app_name: str) -> dict[str, str]:
    """Settings for what the user has not set."""
    import pyspark

    defaults = {
        "spark.app.name": app_name,
        "spark.master": _ANY_CORE,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # A micro-batch writes what it has changed, not the files that this leads to.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if not pyspark.__version__.startswith("4.0."):  # there it has another name
        # Spark's first choice runs `readlink` for every file of a checkpoint, in a process of its
        # own: eighty processes a micro-batch.
        defaults["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    if paths := os.environ.get("PYTHONPATH"):  # else a package that is not installed stays here
        defaults["spark.executorEnv.PYTHONPATH"] = paths
    return defaults


def _settings(defaults: Mapping[str, str], given: Mapping[str, str]) -> "SparkConf":
    """The settings of the session: those of the running JVM, *given* over and *defaults* under."""
    from pyspark import SparkConf

    settings = SparkConf().setAll([*given.items()])
    for name, value in defaults.items():
        settings.setIfMissing(name, value)
    master = str(settings.get("spark.master"))
    _check_master(master)
    if _is_on_this_machine(master):
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            settings.setIfMissing(name, "127.0.0.1")
    return settings


def _partitions(spark: "SparkSession") -> int:
    """As many as there are cores, which a cluster may not have reported yet."""
    context = spark.sparkContext
    least = 2 if re.match(r"local(\[|$)", str(context.master)) else _LEAST_ON_CLUSTER
    return max(least, context.defaultParallelism)


def parallelism(spark: "SparkSession") -> int:
    """How many tasks *spark* runs at a time.

    Spark Connect does not say; there it is the number of partitions of a shuffle.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:
        return int(str(spark.conf.get(_PARTITIONS)))


def _is_on_this_machine(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def _java_environment(
    folder: Path, defaults: Mapping[str, str], given: Mapping[str, str], *, verbose: bool
) -> dict[str, str]:
    """Make the JVM's folder of settings in *folder*; returns what else the JVM needs.

    The folder of settings has all that is in the user's one. In the file of settings the user's
    lines stand below ours, and Spark takes the last line of a setting.
    """
    conf = folder / "conf"
    conf.mkdir()
    theirs = _folder_of_settings()
    for file in theirs.iterdir() if theirs else ():
        if file.name != _DEFAULTS_FILE:
            (conf / file.name).symlink_to(file.absolute())
    lines = "".join(f"{name} {_property(value)}\n" for name, value in defaults.items())
    their_lines = _text(theirs / _DEFAULTS_FILE) if theirs else ""
    (conf / _DEFAULTS_FILE).write_text(lines + their_lines, encoding="utf-8")
    log4j = conf / "log4j2.properties"
    is_silent = not (verbose or log4j.exists())
    if not log4j.exists():
        level = "warn" if verbose else "off"
        log4j.write_text(_LOG4J.replace("@level@", level), encoding="utf-8")
    ours = {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_CONF_DIR": str(conf),
        "AIOWHEEL_SPARK_LOG": str(folder / _LOG) if is_silent else "",
    }
    master = given.get("spark.master") or _configured_master(their_lines)
    if _is_on_this_machine(master) and "SPARK_LOCAL_IP" not in os.environ:
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"  # else a warning about the host's name
    if master.startswith("local") and "SPARK_HOME" not in os.environ and os.name == "posix":
        ours |= _spark_of_links(folder)
    return ours


def _folder_of_settings() -> Path | None:
    """The user's folder of Spark's settings, where Spark would look for it."""
    home = os.environ.get("SPARK_HOME")
    place = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return Path(place) if place and Path(place).is_dir() else None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _property(value: str) -> str:
    """A value as a file of Java's properties has it."""
    return value.replace("\\", "\\\\")


def _configured_master(settings: str) -> str:
    """The master of the user's settings, as far as the environment depends on it."""
    submitted = _MASTER_FLAG.findall(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    found = submitted or _MASTER_LINE.findall(settings)
    return str(found[-1]) if found else _ANY_CORE


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


def _spark_of_links(folder: Path) -> dict[str, str]:
    """A SPARK_HOME of links: workers of a local cluster write into it, and nowhere else.

    It lacks PySpark's archive if the workers run this Python, which has PySpark: each worker would
    compile what it imports from there, for more than a second.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "jars").is_dir():
        return {}  # it lies in a Spark of its own, which PySpark finds
    home = folder / "spark"
    home.mkdir()
    parts = {"bin", "jars", "sbin", "RELEASE"}
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        parts.add("python")
    for part in package.iterdir():
        if part.name in parts:
            (home / part.name).symlink_to(part)
    return {"SPARK_HOME": str(home)}


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


def _stop(jvm: "subprocess.Popen[bytes] | None") -> None:
    """Stop the session, and *jvm*, if it was started for it; a later session starts a fresh one."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        try:
            context.stop()
        except Exception:  # the JVM has died; the failure that it caused is reported already
            _forget(jvm)
            return
    if gateway is not None and jvm is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        if jvm.stdin is not None:
            jvm.stdin.close()  # the JVM ends with its standard input
        jvm.wait(_LAST_SECONDS)


def _forget(jvm: "subprocess.Popen[bytes] | None") -> None:
    """Give the session up, and end *jvm* without asking it; its executors end with it."""
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


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
