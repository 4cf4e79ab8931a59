"""Streams: the errors of the commands before they start Spark."""

import os
from pathlib import Path

import pytest

from aiowheel.cli import run

pytestmark = pytest.mark.one_build

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

USUAL = ["--key", "key", "--time", "t", "--timeout", "30", "--out", "out"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in a folder with a watched folder and a file."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("rejects").mkdir()
    Path("a.csv").write_text("key,t\nk,1\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a.csv", "--stream"], "FILE must be one folder with --stream, got a.csv"),
        (["in", "a.csv", "--stream"], "FILE must be one folder with --stream, got in a.csv"),
        (["missing", "--stream"], "FILE must be one folder with --stream, got missing"),
        (["in", "--stream", "--once", "--drain"], "--once and --drain exclude each other"),
        (["in", "--stream", "--rejects", "bad.csv"], "--rejects is not for --stream"),
        (["in", "--stream", "--max-lateness", "1e99"], "must be at most 31536000 s, got 1e+99"),
        (["in", "--stream", "--max-lateness", "nan"], "Invalid value for '--max-lateness'"),
        (["in", "--stream", "--max-lateness", "-1"], "Invalid value for '--max-lateness'"),
        (["in", "--stream", "--files-per-batch", "0"], "Invalid value for '--files-per-batch'"),
        (["in", "--stream", "--batch-interval", "2d"], "must be 0 s to 86400 s, got 2d"),
        (["in", "--stream", "--key", ""], "--key must be the name of a column, got none"),
        (["in", "--stream", "--out", "in/out"], "must be outside the watched folder, got in/out"),
        (["rejects", "--stream", "--out", "."], "--out must be outside the tables that are read"),
        (["in", "--stream", "--checkpoint", "in"], "--checkpoint must be outside the watched"),
        (["in", "--stream", "--out", "a.csv"], "--out must be a folder, got a.csv: a.csv"),
        (["in", "--stream", "--earliest", "9", "--latest", "8"], "--earliest must be at most 8"),
        (["in", "--stream", "--master", "somewhere"], "--master must be local[*]"),
        (["in", "--stream", "--conf", "spark.a"], "--conf must be KEY=VALUE, got 'spark.a'"),
        (["a.csv", "--drain"], "--drain is for --stream"),
        (["a.csv", "--max-lateness", "1"], "--max-lateness is for --stream"),
        (["a.csv", "--checkpoint", "c"], "--checkpoint is for --stream"),
        (["a.csv", "--shards", "2"], "--shards is for --stream"),
        (["a.csv", "--batch-interval", "1m"], "--batch-interval is for --stream"),
        (["kafka://a:1/b", "--files-per-batch", "2"], "--files-per-batch is for --stream"),
        (["kafka://a:1/b", "--max-lateness", "1"], "--max-lateness is for --stream"),
        (["a.csv", "--master", "local[1]"], "--master is for --engine spark"),
        (["a.csv", "--conf", "a=b"], "--conf is for --engine spark"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark does not start, and at most an empty folder is created."""
    code = run(["idle", *USUAL, *arguments])

    printed = capsys.readouterr()
    assert code == 2
    assert reason in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")
    assert not list(Path("out").glob("*"))


@pytest.mark.parametrize("job", ["idle", "purgatory"])
def test_a_watched_folder_without_permission_is_refused(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The permission is simulated, because root has access to all folders."""

    def access(path: Path, _mode: int) -> bool:
        return path.name != "in"

    monkeypatch.setattr(os, "access", access)
    Path("other").mkdir()
    given = {
        "idle": ["in", "--key", "key", "--time", "t", "--timeout", "30"],
        "purgatory": ["other", "in"],
    }

    assert run([job, *given[job], "--stream", "--out", "out"]) == 2

    assert capsys.readouterr().err == "aiowheel: in: no permission to read there\n"
    assert not Path("out").exists()


def test_pending_refuses_a_wrong_checkpoint_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark takes some ten seconds, which a typing error should not cost."""
    monkeypatch.setattr("aiowheel.cli.pending.job_session", None)

    assert run(["pending", "--checkpoint", "in"]) == 2

    assert capsys.readouterr().err == "aiowheel: in: no checkpoint of a streaming purgatory\n"


def test_a_missing_java_is_reported_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is the command that installs one; no folder is created."""
    monkeypatch.setattr("aiowheel.jobs.spark.java._candidates", lambda: iter(()))

    code = run(["idle", "in", "--stream", *USUAL])

    assert code == 1
    assert capsys.readouterr().err == "aiowheel: this needs: pip install 'aiowheel[spark-java]'\n"
    assert not Path("out").exists()
