"""The output of a benchmark program: tables, verdicts, and both as JSON."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from aiowheel._outputs import whole_file
from benchmarks._machine import describe_machine
from benchmarks._rounds import Series


@dataclass(frozen=True, slots=True)
class Table:
    """Formatted cells; the first column is text, the others are figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of an acceptance table."""

    what: str
    measured: float
    bound: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the figure keeps its bound."""
        if self.at_least:
            return self.measured >= self.bound
        return self.measured <= self.bound

    def __str__(self) -> str:
        relation = "at least" if self.at_least else "at most"
        word = "pass" if self.passed else "FAIL"
        return f"{word}  {self.what}: {self.measured:,.2f}, wanted {relation} {self.bound:g}"


@dataclass(slots=True)
class Report:
    """The results of one run."""

    program: str
    arguments: Mapping[str, object]
    tables: list[Table] = field(default_factory=list[Table])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    series: dict[str, list[Series]] = field(default_factory=dict[str, list[Series]])
    machine: dict[str, object] = field(default_factory=describe_machine)

    def add(self, line: str, measured: Mapping[str, Series]) -> None:
        """Add all rounds of one line of the program."""
        self.series.setdefault(line, []).extend(measured.values())

    def leave_out(self, name: str, why: str) -> None:
        """Add a line for something that cannot be measured."""
        self.tables.append(Table(f"{name}: not measured, for {why}", ("",), ()))

    def as_json(self) -> str:
        """Return the whole run, with every round, as JSON."""
        content = {
            "program": self.program,
            "machine": self.machine,
            "arguments": self.arguments,
            "tables": [asdict(table) for table in self.tables],
            "verdicts": [{**asdict(one), "passed": one.passed} for one in self.verdicts],
            "rounds": {
                line: [asdict(series) for series in measured]
                for line, measured in self.series.items()
            },
        }
        return json.dumps(content, indent=1, default=str) + "\n"

    def write(self, path: Path) -> None:
        """Write the JSON to a file, atomically."""
        with whole_file(path) as file:
            file.write(self.as_json())

    def print(self, *, judged: bool) -> None:
        """Print the tables on stdout, and the verdicts if *judged*."""
        machine = self.machine
        print(
            f"{machine['python']}, {machine['build']} build, {machine['cpu']}, "
            f"{machine['cores']} cores, load {machine['load']} when it began"
        )
        for table in self.tables:
            print_table(table)
        if judged:
            for verdict in self.verdicts:
                print(verdict)


def median_rows(
    measured: Mapping[str, Series], figures: Iterable[tuple[str, int]]
) -> list[list[str]]:
    """Return a row of medians for each side.

    Args:
        measured: The series by the name of the side.
        figures: Names of figures, with numbers of decimals; one that a side lacks is left empty.
    """
    return [
        [
            name,
            *(
                f"{series.median(figure):,.{digits}f}" if figure in series.rounds[0] else ""
                for figure, digits in figures
            ),
        ]
        for name, series in measured.items()
    ]


def print_table(table: Table) -> None:
    """Print one table, with rich where it is installed and stdout is a terminal."""
    if sys.stdout.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.table import Table as RichTable

        shown = RichTable(title=table.title, title_justify="left")
        for place, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if place else "left")
        for row in table.rows:
            shown.add_row(*row)
        Console().print(shown)
        return
    lines = [table.columns, *table.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.columns))]
    print(f"\n{table.title}")
    for line in lines:
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join([first, *others]))
