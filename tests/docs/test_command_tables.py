"""The tables of options in `docs/reference/command-line.md` are those of the commands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import typer

from aiowheel.cli._app import COMMANDS, build_app

pytestmark = pytest.mark.one_build

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text("utf-8")
HEAD = "| option | meaning | default and range |\n|---|---|---|"
SPARK = ("--master", "--conf", "--verbose")
SPARK_ROW = "| `--master`, `--conf`, `--verbose` | see [Spark](#spark) | |"


def commands(names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Return the name and the command of each subcommand, those of groups included."""
    root: Any = typer.main.get_command(build_app(names))
    for name, command in root.commands.items():
        group = getattr(command, "commands", None)
        if group is None:
            yield name, command
        else:
            for word, each in group.items():
                yield f"{name} {word}", each


def records(command: Any) -> Iterator[tuple[str, str, str]]:
    """Return of each parameter what the help screen shows: its form, help and extras."""
    context = typer.Context(command)
    for parameter in command.params:
        form, text = parameter.get_help_record(context)
        meaning, _, extras = text.partition("  [")
        yield form, meaning, extras.removesuffix("]")


def row(form: str, meaning: str, extras: str) -> str:
    """Return the line of a table."""
    form, _, kind = form.partition(" <")
    meaning = meaning if meaning.endswith("...") else meaning.removesuffix(".")
    if "|" in kind:
        choices = kind.removesuffix(">").split("|")
        meaning += f": {', '.join(f'`{each}`' for each in choices)}"
    extras = re.sub(r"default: (?:\((.*?)\))?", r"\1", extras)
    extras = re.sub(r"(\S+)<=x<=(\d+)", r"from \1 to \2", extras).replace("x>=", "at least ")
    extras = re.sub(r"env var: (\w+)", r"environment variable `\1`", extras)
    cells = [f"`{form}`", meaning, extras.strip()]
    return re.sub(r" +\|", " |", f"| {' | '.join(cells)} |")


def expected_tables() -> dict[str, str]:
    """Return the table of each command of the installed package."""
    tables: dict[str, str] = {}
    names = tuple(name for name in COMMANDS if name != "bench")
    for name, command in commands(names):
        lines = [row(*record) for record in records(command)]
        kept = [line for line in lines if not line.startswith(tuple(f"| `{o}" for o in SPARK))]
        if kept != lines:
            kept.append(SPARK_ROW)
        tables[f"aiowheel {name}"] = "\n".join([HEAD, *kept])
    return tables


def printed_tables() -> dict[str, str]:
    """Return the tables of the page, by the headings above them."""
    options = PAGE.partition("\n## Options\n")[2].partition("\n## ")[0]
    found = re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", options, re.MULTILINE)
    return {name: table.rstrip("\n") for name, table in found}


def test_each_command_has_the_table_of_its_options() -> None:
    """The texts are those of `--help`. The difference shows the lines to put into the page."""
    assert printed_tables() == expected_tables()


def test_the_table_of_benchmarks_names_every_option() -> None:
    """One table has the options of all benchmarks, with the benchmarks that take them."""
    benchmarks = {
        name.removeprefix("bench "): {form.split()[0] for form, _, _ in records(command)}
        for name, command in commands(("bench",))
    }
    every: set[str] = set(benchmarks) - {"all"}
    section = PAGE.partition("\n## bench\n")[2].partition("\n## ")[0]
    named: dict[str, set[str]] = {name: set() for name in benchmarks}
    for options, of in re.findall(r"^\| (`--.*?) \| (.*?) \|", section, re.MULTILINE):
        takers: set[str] = set(re.findall(r"`(\w+)`", of))
        if "every benchmark" in of:
            takers |= every
        for taker in takers:
            named[taker] |= set(re.findall(r"--[a-z-]+", options))

    assert named == benchmarks


def test_help_texts_have_one_form() -> None:
    """A value has a name in capitals, typer shows the default, and a repeatable option says so."""
    for name, command in commands(tuple(COMMANDS)):
        for form, meaning, _ in records(command):
            if form.startswith("--"):  # typer adds the type of an argument
                assert not re.search(r"<(str|int|float|Path)\b", form), (name, form)
            assert meaning.endswith("."), (name, form, meaning)
            assert "default" not in meaning.lower(), (name, form, meaning)
        for parameter in command.params:
            if getattr(parameter, "multiple", False):
                assert "may be repeated" in parameter.help, (name, parameter.opts)
