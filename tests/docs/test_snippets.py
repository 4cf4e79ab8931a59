"""The documentation runs: every fenced Python block, and every cheap `$ aiowheel` line.

A block is a whole program: it runs alone in an empty folder, as a reader would run it. A block is
skipped only after a comment with a reason: `<!-- not run: the reason -->`. A block whose title is
that of a test module is run by pytest. docs/contributing.md describes the same for writers.
"""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiowheel.cli import run

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]  # as a reader would run it

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?"
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n'
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
# Commands that end immediately; the others start servers or Spark and have their own tests.
CHEAP = {("doctor",), ("--help",), ("--version",)}


def relative(path: Path) -> str:
    """Return the path as shown in a test id."""
    return path.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    title: str
    text: str

    def __str__(self) -> str:
        return f"{relative(self.page)}:{self.line}"


def blocks(page: Path, languages: set[str]) -> Iterator[Block]:
    """Yield the page's blocks in these languages that are to be run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["language"] in languages and match["reason"] is None:
            line = text.count("\n", 0, match.start("text"))
            yield Block(page, line, match["title"] or "", textwrap.dedent(match["text"]))


# tests/docs/test_tutorial.py runs the tutorial, from files, as its pages say.
PROGRAMS = [
    block for page in PAGES if page.parent.name != "tutorial" for block in blocks(page, {"python"})
]


def is_test(block: Block) -> bool:
    """Return whether pytest runs the block."""
    return block.title.startswith("test_")


@pytest.mark.parametrize("block", [each for each in PROGRAMS if not is_test(each)], ids=str)
def test_a_python_block_runs_alone(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of a page works as shown; its asserts hold."""
    monkeypatch.chdir(tmp_path)
    # The padding keeps the page's line numbers, so that a traceback points into the page.
    code = compile("\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True)
    namespace: dict[str, Any] = {"__name__": "__main__"}

    exec(code, namespace)


DASHBOARDS = [
    block
    for page in PAGES
    for block in blocks(page, {"python"})
    if "Dashboard(" in block.text and "lifespan=" in block.text
]


@pytest.mark.parametrize("block", DASHBOARDS, ids=str)
async def test_an_application_with_a_dashboard_can_start_again(block: Block) -> None:
    """Tests start an application often; each start serves the dashboard of its own timer."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(block.text, namespace)
    app = namespace["app"]
    served: list[object] = []

    for _ in range(2):
        async with app.router.lifespan_context(app):
            mounts = [each for each in app.routes if getattr(each, "path", "") == "/wheels"]
            served.extend(each.app for each in mounts)

    assert len(DASHBOARDS) == 2
    assert len(set(served)) == len(served) == 2


def test_the_tests_on_the_pages_pass(tmp_path: Path) -> None:
    """Each block is a module; one run of pytest runs all, as in a project with aiowheel."""
    found = [block for block in PROGRAMS if is_test(block)]
    for place, block in enumerate(found):
        (tmp_path / f"test_{place}_{block.title.removeprefix('test_')}").write_text(block.text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(found) > 3
    assert run.returncode == 0, run.stdout


def command_lines(page: Path) -> list[list[str]]:
    """Return the arguments of every `$ aiowheel ...` line of the page."""
    lines = (
        line.removeprefix("$ ")
        for block in blocks(page, {"bash", "console"})
        for line in block.text.splitlines()
    )
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("aiowheel ")]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_command_lines_name_existing_commands(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cheap commands run; for others the subcommand and its options must exist."""
    for arguments in command_lines(page):
        if tuple(arguments) in CHEAP or "--help" in arguments:
            assert run(arguments) == 0, arguments
            continue
        has_subcommands = arguments[0] in {"bench", "durable"} and arguments[1:2] != []
        words = arguments[: 2 if has_subcommands and not arguments[1].startswith("-") else 1]
        assert run([*words, "--help"]) == 0, arguments
        listed = capsys.readouterr().out
        options = {each.partition("=")[0] for each in arguments[1:] if each.startswith("-")}
        assert {each for each in options if each not in listed} == set(), arguments


def test_blocks_are_found_or_skipped_with_a_reason(tmp_path: Path) -> None:
    """The pattern finds blocks; otherwise no page could fail."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\none = 1\n```\n\n<!-- not run: needs a network -->\n```python\ntwo\n```\n"
        "1. a list\n\n    ```python\n    if one:\n        three = 3\n    ```\n"
    )

    found = [block.text for block in blocks(page, {"python"})]

    assert found == ["one = 1\n", "if one:\n    three = 3\n"]
