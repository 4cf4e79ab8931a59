"""Durations on the command line: the parser, and all options that use it."""

import math
from collections.abc import Callable

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from aiowheel.cli import _app, run
from aiowheel.cli._duration import UNITS, seconds_of

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.01", 0.01),
        ("1e-3", 0.001),
        ("-1", -1.0),
        ("inf", math.inf),
        ("10m", 600.0),
        ("1h30m", 5_400.0),
        ("1d", 86_400.0),
        ("2d1h", 176_400.0),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("300ms", 0.3),
        ("1s500ms", 1.5),
        ("1m5ms", 60.005),
        ("250us", 0.00025),
        ("1ns", 1e-9),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_has_units(text: str, seconds: float) -> None:
    """The result is the same float as for the number of seconds."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "m",
        "10 m",
        "30m1h",
        "1h1h",
        "-5m",
        "1h-30m",
        "5M",
        "1,5s",
        "nan",
        "0x10",
        "1_000",
        "٣",
        "٣s",
    ],
)
def test_anything_else_is_refused_with_the_units(text: str) -> None:
    """This includes NaN, and units in another order."""
    with pytest.raises(ValueError, match=r"10m or 1h30m, with the units d, h, m, s, ms, us, ns"):
        seconds_of(text)


@given(st.floats(allow_nan=False))
def test_a_plain_number_is_parsed_as_by_float(seconds: float) -> None:
    """Scripts with plain numbers keep working."""
    assert seconds_of(repr(seconds)) == seconds


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_unit_is_exact(count: int, unit: str) -> None:
    """The only rounding is that of the result."""
    assert seconds_of(f"{count}{unit}") == float(count * UNITS[unit])


def duration_options() -> list[tuple[str, str]]:
    """Return (command, option) for each option that takes a duration."""
    found: list[tuple[str, str]] = []

    def look(command: object, words: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            look(inner, f"{words} {name}".strip())
        found.extend(
            (words, parameter.opts[0])
            for parameter in getattr(command, "params", [])
            if getattr(parameter, "metavar", "") == "DURATION"
        )

    look(typer.main.get_command(_app.build_app(_app.COMMANDS)), "")
    return found


def test_every_option_that_is_a_time_takes_a_duration() -> None:
    """A new option of this kind must be added here, and an old one must stay."""
    assert sorted(duration_options()) == [
        ("bench purgatory", "--seconds"),
        ("bench shared", "--seconds"),
        ("durable export", "--ahead"),
        ("idle", "--batch-interval"),
        ("idle", "--max-lateness"),
        ("idle", "--timeout"),
        ("purgatory", "--batch-interval"),
        ("purgatory", "--max-ahead"),
        ("purgatory", "--max-lateness"),
        ("replay", "--tick"),
        ("replay", "--timeout"),
        ("serve", "--heartbeat"),
        ("serve", "--keep-seconds"),
        ("serve", "--max-timeout"),
        ("serve", "--receive-timeout"),
        ("simulate", "--p50"),
        ("simulate", "--p75"),
        ("simulate", "--tick"),
        ("simulate", "--timeout"),
        ("tune", "--max-lateness"),
        ("tune", "--tick"),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tune", "t", "--tick", "soon"], "Invalid value for '--tick': must be a duration such as"),
        (["serve", "--heartbeat", "2h"], "'--heartbeat': must be 0.1 s to 3600 s, got 2h"),
        (["serve", "--max-timeout", "1.5"], "--max-timeout must be whole seconds, got 1.5"),
        (
            ["purgatory", "o", "e", "--out", "x", "--max-ahead", "-1"],
            "'--max-ahead': must be 0 s or more, got -1",
        ),
    ],
)
def test_a_bad_duration_is_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the option, the legal forms and the value."""
    assert run(arguments) == 2

    printed = capsys.readouterr().err
    assert reason in printed
    assert printed.count("\n") == 1


@pytest.fixture
def completions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Return the shell completions of the last word of a line."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("_AIOWHEEL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        with pytest.raises(SystemExit) as ended:
            run([])
        assert ended.value.code == 0
        return capsys.readouterr().out.split()

    return complete


def test_a_shell_completes_commands_and_options(completions: Callable[[str], list[str]]) -> None:
    """The test calls the command as a completion script does."""
    assert completions("aiowheel re") == ["report", "replay"]  # in the order of the help
    assert completions("aiowheel replay --t") == ["--tick", "--timeout"]
    assert "purgatory" in completions("aiowheel bench p")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_can_be_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script calls the command with this environment variable."""
    monkeypatch.setenv("_AIOWHEEL_COMPLETE", f"source_{shell}")

    with pytest.raises(SystemExit) as ended:
        run([])

    assert ended.value.code == 0
    assert "_AIOWHEEL_COMPLETE=complete_" in capsys.readouterr().out
