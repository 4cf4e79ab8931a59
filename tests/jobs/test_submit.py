"""Commands submitted to a standalone cluster that has nothing but a wheel of this package."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiowheel.jobs.spark.java import find_java, spark_java_home

from .test_cluster import CONF, PATIENCE, standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.spark_cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[2]
#: A job that looks where the package of the workers lies, and runs commands in its session.
CODE = """
from pyspark.sql import SparkSession

from aiowheel.cli import run

def where(batches):
    import aiowheel, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"file": [aiowheel.__file__]})

table = ["--key", "key", "--time", "t", "--timeout", "10"]
rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
builder = SparkSession.builder.config("spark.sql.streaming.stateStore.providerClass", rocks)
spark = builder.getOrCreate()
print("found", spark.range(1).mapInArrow(where, "file string").first()[0])
print("batch", run(["idle", "touches.csv", *table, "--engine", "spark", "--out", "idle.csv"]))
print("stream", run(["idle", "in", *table, "--stream", "--drain", "--shards", "2", "--out", "out"]))
print("refused", run(["idle", "touches.csv", *table, "--engine", "spark", "--out", "."]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pure wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"AIOWHEEL_NO_EXTENSIONS": "1"}
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, env=environment, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with what aiowheel needs and without aiowheel."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder added by a .pth has no .pth files of its own: an editable aiowheel stays away.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "bin" / "python"
    code = "import importlib.util, pyarrow; print(importlib.util.find_spec('aiowheel'))"
    found = subprocess.run(
        [python, "-c", code],
        cwd=folder,  # from the root of this tree, aiowheel would be there
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
    """The URL of a master with two workers."""
    with standalone(tmp_path_factory.mktemp("cluster")) as (url, _):
        yield url


def _own(more: dict[str, str]) -> dict[str, str]:
    """The environment without paths to this tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def submit(
    master: str, python: Path, folder: Path, *arguments: str | Path
) -> "subprocess.CompletedProcess[str]":
    """Submit a job from *folder*."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [part for one in CONF for part in ("--conf", one)]
    more = {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [program, "--master", master, *settings, *arguments],
        cwd=folder,
        env=_own(more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("shipped", ["py-files", "installed"])  # an installed one stays
def test_workers_have_only_a_wheel(
    shipped: str, wheel: Path, bare_python: Path, master: str, tmp_path: Path
) -> None:
    """It is installed beside what it needs, or goes along with the job; results are the same."""
    files: list[str | Path] = []
    if shipped == "installed":
        (packages,) = bare_python.parents[1].glob("lib/python*/site-packages")
        place = packages / "aiowheel"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", packages, wheel], check=True, timeout=120)
    else:
        place = tmp_path / "aiowheel.zip"
        place.write_bytes(wheel.read_bytes())
        files = ["--py-files", place]
    (tmp_path / "all.py").write_text(CODE)
    (tmp_path / "in").mkdir()
    for file in ("touches.csv", "in/0.csv"):
        (tmp_path / file).write_text("key,t\na,1\na,20\nb,5\n")

    done = submit(master, bare_python, tmp_path, *files, "all.py")

    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    (found,) = (line for line in printed if line.startswith("found "))
    assert f"/{place.name}/" in found
    assert str(ROOT) not in found
    assert {"batch 0", "stream 0", "refused 2"} <= set(printed)
    assert (tmp_path / "idle.csv").read_text() == "fire,key\n11,a\n15,b\n30,a\n"
    assert re.search(r"^all events +3$", done.stdout, re.MULTILINE)
