"""Convert the results of `aiowheel bench` to the page of figures.

Run:
    python -m benchmarks.figures aiowheel-bench/*.json > docs/explanation/figures.md
"""

import json
import sys
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# Figures

After this page you know what aiowheel costs, and in which cases another tool costs less.

The commands below measured these figures, and `benchmarks/figures.py` wrote the page.
[How we benchmark](how-we-benchmark.md) explains the columns and the sides.
Compare figures only within one table: nanoseconds differ by half between two machines, and between
two hours on one machine.
A load above the number of cores means that other programs used the cores as well; the wall-clock
columns of such a table say little.

aiowheel costs more, or is slower, in these cases:

- One timer that is pending alone, fires and is set again costs up to 1.7 times as much as a timer
  of the event loop itself, and three times in the pure build, because each firing wakes the driver
  task. With 1,000 such timers the compiled build costs less than asyncio and uvloop.
- A callback runs up to one tick (1 ms) after its deadline, so the median lateness is higher than
  that of the timers of asyncio and uvloop.
- `wait_for` on uvloop and Python 3.11 costs a little more than asyncio's `wait_for`.
- The pure build costs up to nine times as much as uvloop's own timers. While few timers are
  pending it also costs more than asyncio's.
- rloop's own timers cost less than aiowheel's on rloop when they fire.
- Idle connections: code that only notes the time of each message, and looks at all connections now
  and then, costs no more than `IdleDetector` and `LimitedProtocol`.
- Above the capacity of one core, timeouts and completions come late, so that the share of requests
  which expire is wrong, with aiowheel as with every other design in the tables of 300,000 requests
  per second.
- Touching a random timer costs more with a million pending timers than with a thousand. Most of
  that time is needed to fetch the handle from memory and to read the clock; the column
  `clock instead of touch` measures these two steps alone.
- Awaiting a watch costs twice as much as awaiting a bare future, and three times as much in
  standing tasks that do nothing else. A watch creates an operation, evaluates its condition twice
  and sets a deadline.
- A purgatory with lazy purging falls behind when many operations are pending, because each purge
  examines all of them.
- A wait for a shared counter uses twice as much CPU time as a subscription of broadcaster on the
  same server at 1,000 publishes per second, and 0.6 times as much at 10,000. A wake-up takes as
  long as 2 to 6 raw writes to the store, and 1.0 to 3.7 times as long as a message of broadcaster.
- 100 tasks that schedule durable timers on SQLite reach 3 to 10 times the rate of raw commits of
  one row; our goal is 15 times. The faster the disk confirms a commit, the less is gained by
  sharing one. Besides, the name of each timer is on another page of the index, and each commit
  writes these pages.
- Durable timers that are overdue fire 3 to 5 times as fast as PGQueuer's jobs, and are scheduled in
  bulk 1.9 to 2.4 times as fast; our goals are 10 and 2 times.
- Every promise that a table below marks as missed.
"""
WORDS = {False: "at most", True: "at least"}
COMMANDS = {
    "wheel": "aiowheel bench wheel",
    "timer": "aiowheel bench timer",
    "loop": "aiowheel bench loop",
    "purgatory": "aiowheel bench purgatory",
    "purgatory-micro": "aiowheel bench purgatory --micro",
    "idle": "aiowheel bench idle",
    "longpoll": "aiowheel bench longpoll",
    "programs": "aiowheel bench programs",
    "shared": "aiowheel bench shared",
    "durable": "aiowheel bench durable",
}


#: The arguments that tell two runs of one program apart, in a heading.
TITLED = ("only", "cases", "keys", "completion")


def heading(run: dict[str, Any], first: dict[str, Any]) -> str:
    """Return the heading of a run; *first* is the page's first run of the same program."""
    arguments: dict[str, Any] = run["arguments"]
    others = [
        f"{name} {', '.join(value) if isinstance(value, list) else value}"
        for name in TITLED
        if (value := arguments.get(name)) != first["arguments"].get(name)
    ]
    return f"## {run['program']}: {', '.join(others)}" if others else f"## {run['program']}"


def _loops(machine: dict[str, Any]) -> str:
    """Return the versions of the measured event loops that are packages of their own."""
    names = ("uvloop", "rloop", "zuvloop")
    return ", ".join(f"{name} {machine[name]}" for name in names if machine.get(name))


def section(run: dict[str, Any], first: dict[str, Any]) -> list[str]:
    """Return the tables and verdicts of a run, in Markdown; *first* as for `heading`."""
    machine: dict[str, Any] = run["machine"]
    arguments = ", ".join(f"{name} {value}" for name, value in run["arguments"].items() if value)
    load = f"load {machine['load']} when it began, {machine['at'][:10]}."
    lines = [
        heading(run, first),
        "",
        f"`{COMMANDS[run['program']]}` with {arguments}.",
        f"{machine['python']}, {machine['build']} build, {_loops(machine)},",
        f"{machine['cpu']}, {machine['cores']} cores, {load}",
    ]
    for table in run["tables"]:
        rule = [":--", *["--:"] * (len(table["columns"]) - 1)]
        rows = [table["columns"], rule, *table["rows"]]
        lines += ["", f"**{table['title']}**", "", *(f"| {' | '.join(row)} |" for row in rows)]
    if run["verdicts"]:
        lines += ["", "| promise | measured | wanted | |", "|:--|--:|--:|:--|"]
    for one in run["verdicts"]:
        wanted = f"{WORDS[one['at_least']]} {one['bound']:,.4g}"
        word = "kept" if one["passed"] else "**missed**"
        lines.append(f"| {one['what']} | {one['measured']:,.2f} | {wanted} | {word} |")
    return [*lines, ""]


def main() -> None:
    """Print the page."""
    print(INTRODUCTION)
    first: dict[str, dict[str, Any]] = {}
    for name in sys.argv[1:]:
        run: dict[str, Any] = json.loads(Path(name).read_bytes())
        print("\n".join(section(run, first.setdefault(run["program"], run))))


if __name__ == "__main__":
    main()
