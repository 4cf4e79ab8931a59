"""Commands submitted to a standalone cluster: every job, and workers with only a wheel file."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.java import find_java, spark_java_home

from .test_cluster import CONF, PATIENCE, QUICK_JAVA, standalone
from .test_odd_paths import write_trace

pytestmark = [
    pytest.mark.spark,
    pytest.mark.spark_cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[2]
TABLE = ["--key", "key", "--time", "t", "--timeout", "10"]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.app.name": "theirs",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": ROCKS,
    **dict(setting.split("=") for setting in CONF),
}
#: The jobs by name, and the exit code of each.
JOBS: dict[str, tuple[list[str], int]] = {
    "idle": (["idle", "touches.csv", *TABLE, "--engine", "spark", "--out", "idle.csv"], 0),
    "idle stream": (["idle", "in", *TABLE, "--stream", "--drain", "--out", "idle"], 0),
    "purgatory": (["purgatory", "ops", "events", "--engine", "spark", "--out", "found"], 0),
    "purgatory stream": (["purgatory", "ops", "events", "--stream", "--once", "--out", "out"], 0),
    "pending": (["pending", "--checkpoint", "out/checkpoint", "--json"], 0),
    "flush": (["flush", "--checkpoint", "out/checkpoint"], 0),
    "the flushed stream": (["purgatory", "ops", "events", "--stream", "--out", "out"], 0),
    "report": (["report", "trace", "--out", "report"], 0),
    "tune": (["tune", "trace", "--tick", "0.001", "--wheel-size", "64", "--out", "tuned"], 0),
    "simulate": (["simulate", "--operations", "100", "--shards", "2", "--out", "simulated"], 0),
    "refused": (["idle", "touches.csv", *TABLE, "--engine", "spark", "--out", "."], 2),
    "without input": (["report", "in", "--out", "none"], 2),
    "flushed before": (["purgatory", "ops", "events", "--stream", "--once", "--out", "out"], 2),
}
#: Runs the commands in the session of its submission, and exits with a different code.
EVERY = """
import json, sys
from pyspark.sql import SparkSession
from aiowheel.cli import run
spark = SparkSession.builder.getOrCreate()
settings, jobs = json.load(open("jobs.json"))
codes = {name: run(command) for name, command in jobs.items()}
found = {name: spark.conf.get(name) for name in settings}
print("told", json.dumps([codes, found, spark.sparkContext.defaultParallelism]))
sys.exit(7)
"""
#: A job that prints the place of the workers' package, and runs commands in its session.
CODE = """
from pyspark.sql import SparkSession

from aiowheel.cli import run

def where(batches):
    import aiowheel, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"file": [aiowheel.__file__]})

table = ["--key", "key", "--time", "t", "--timeout", "10"]
spark = SparkSession.builder.getOrCreate()
print("found", spark.range(1).mapInArrow(where, "file string").first()[0])
print("batch", run(["idle", "touches.csv", *table, "--engine", "spark", "--out", "idle.csv"]))
print("stream", run(["idle", "in", *table, "--stream", "--drain", "--shards", "2", "--out", "out"]))
print("refused", run(["idle", "touches.csv", *table, "--engine", "spark", "--out", "."]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a pure wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"AIOWHEEL_NO_EXTENSIONS": "1"}
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, env=environment, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def archive(wheel: Path) -> Path:
    """Copy the wheel to a name that spark-submit accepts for Python."""
    return Path(shutil.copy(wheel, wheel.with_name("aiowheel.zip")))


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an interpreter with aiowheel's dependencies and without aiowheel."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (packages,) = folder.glob("lib/python*/site-packages")
    # .pth files are not read in a folder that a .pth adds: an editable aiowheel is not found.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "bin" / "python"
    code = "import importlib.util, pyarrow; print(importlib.util.find_spec('aiowheel'))"
    found = subprocess.run(
        [python, "-c", code],
        cwd=folder,  # in the root of this tree, aiowheel would be importable
        env=_own({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout == "None\n"
    return python


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a master with two workers, whose environment has no path to this tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with standalone(tmp_path_factory.mktemp("cluster")) as (url, _):
            yield url


def _own(more: dict[str, str]) -> dict[str, str]:
    """Return the environment without paths to this tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def submit(
    master: str, python: Path, folder: Path, *arguments: str | Path
) -> "subprocess.CompletedProcess[str]":
    """Submit a job from *folder*, with settings in the user's SPARK_CONF_DIR."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = folder / "conf"
    settings.mkdir()
    lines = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    (settings / "spark-defaults.conf").write_text(lines)
    more = QUICK_JAVA | {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "PYSPARK_PYTHON": str(python),
        "SPARK_CONF_DIR": str(settings),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [program, "--master", master, *arguments],
        cwd=folder,
        env=_own(more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def write_touches(folder: Path) -> None:
    """Write touches of two keys, as a file and as a watched folder."""
    (folder / "in").mkdir()
    for file in ("touches.csv", "in/0.csv"):
        (folder / file).write_text("key,t\na,1\na,20\nb,5\n")


@pytest.mark.parametrize("shipped", ["py-files", "installed"])  # in this order
def test_workers_with_only_a_wheel_give_the_same_results(
    shipped: str, wheel: Path, archive: Path, bare_python: Path, master: str, tmp_path: Path
) -> None:
    """The wheel is installed beside its dependencies, or sent with the job; results are equal."""
    files: list[str | Path] = []
    if shipped == "installed":
        (packages,) = bare_python.parents[1].glob("lib/python*/site-packages")
        place = packages / "aiowheel"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", packages, wheel], check=True, timeout=120)
    else:
        place = archive
        files = ["--py-files", archive]
    (tmp_path / "all.py").write_text(CODE)
    write_touches(tmp_path)

    done = submit(master, bare_python, tmp_path, *files, "all.py")

    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    (found,) = (line for line in printed if line.startswith("found "))
    assert f"/{place.name}/" in found
    assert str(ROOT) not in found
    assert {"batch 0", "stream 0", "refused 2"} <= set(printed), done.stdout
    assert (tmp_path / "idle.csv").read_text() == "fire,key\n11,a\n15,b\n30,a\n"
    assert re.search(r"^all events +3$", done.stdout, re.MULTILINE)


def test_every_job_runs_in_the_session_of_its_submission(
    archive: Path, bare_python: Path, master: str, tmp_path: Path
) -> None:
    """Each job writes its results and has its exit code; the user's settings stay."""
    from aiowheel.jobs.idle.stream import read_idle_events
    from aiowheel.jobs.spark.sinks import read_batches, read_folder

    write_touches(tmp_path)
    for name, row in (
        ("ops", {"id": "met", "keys": ["k"], "created": 1}),
        ("ops", {"id": "over", "keys": ["no"], "created": 1, "deadline": 5}),
        ("ops", {"id": "ever", "keys": ["no"], "created": 1}),
        ("events", {"key": "k", "time": 3}),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        with (tmp_path / name / "0.ndjson").open("a") as file:
            file.write(f"{json.dumps(row)}\n")
    write_trace(tmp_path / "trace", "r")
    commands = {name: command for name, (command, _) in JOBS.items()}
    (tmp_path / "jobs.json").write_text(json.dumps([SETTINGS, commands]))
    (tmp_path / "every.py").write_text(EVERY)

    done = submit(master, bare_python, tmp_path, "--py-files", archive, "every.py")

    assert done.returncode == 7, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("told "))
    codes, settings, cores = json.loads(line.removeprefix("told "))
    assert codes == {name: code for name, (_, code) in JOBS.items()}, done.stdout
    assert (settings, cores) == (SETTINGS, 2)
    wanted = [(11, "a"), (15, "b"), (30, "a")]
    lines = [f"{fire},{key}" for fire, key in wanted]
    assert (tmp_path / "idle.csv").read_text().splitlines() == ["fire,key", *lines]
    assert list(read_idle_events(tmp_path / "idle" / "events")) == wanted
    ends = [("met", "completed", "k", 3), ("over", "expired", None, 5)]
    for table in (
        read_folder(tmp_path / "found" / "outcomes", OUTCOMES),
        read_batches(tmp_path / "out" / "outcomes", OUTCOMES),
    ):
        assert sorted(tuple(row.values()) for row in table.to_pylist()) == ends
    for page in ("report/report.html", "tuned/tune.html", "simulated/simulate.html"):
        assert (tmp_path / page).is_file()


def test_a_submission_ends_with_the_exit_code_of_its_command(
    archive: Path, bare_python: Path, master: str, tmp_path: Path
) -> None:
    """The program of the documentation is submitted."""
    write_touches(tmp_path)
    job = ROOT / "examples" / "spark" / "job.py"

    done = submit(master, bare_python, tmp_path, "--py-files", archive, job, *JOBS["refused"][0])

    assert done.returncode == 2, done.stderr
    assert "aiowheel: --out must be a file, got ." in done.stdout  # Spark writes both outputs there
