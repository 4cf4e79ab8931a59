"""The documentation runs: every fenced Python block, and every `$ aiowheel` line that is cheap.

The blocks of one page share a namespace, in order, on one event loop: top-level `await` works, as
in `python -m asyncio`. A block is passed over only after a comment of its own that says why:
`<!-- not run: the reason -->`. docs/contributing.md tells writers the same.
"""

import ast
import asyncio
import inspect
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from aiowheel.cli import run

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]  # a page shows what a reader would type

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
# Commands that answer at once; the others start servers or Spark and have tests of their own.
CHEAP = {("doctor",), ("--help",), ("--version",)}


def relative(path: Path) -> str:
    """Path as it stands in a test id."""
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, languages: set[str]) -> Iterator[tuple[int, str]]:
    """(line number, text) of the page's blocks in these languages that are to be run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["language"] in languages and match["reason"] is None:
            line = text.count("\n", 0, match.start("text"))
            yield line, textwrap.dedent(match["text"])


def compiled(page: Path, line: int, text: str) -> CodeType:
    """The block's code; line numbers are the page's own, so a traceback points into it."""
    source = "\n" * line + text
    code: CodeType = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page shows works as shown; an assert in it holds."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}

    with asyncio.Runner() as runner:
        for line, text in blocks(page, {"python"}):
            result = eval(compiled(page, line, text), namespace)  # runs statements: exec for await
            if inspect.iscoroutine(result):
                runner.run(result)


def command_lines(page: Path) -> list[list[str]]:
    """Arguments of every `$ aiowheel ...` line of the page."""
    lines = (
        line.removeprefix("$ ")
        for _, text in blocks(page, {"bash", "console"})
        for line in text.splitlines()
    )
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("aiowheel ")]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_command_lines_name_what_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cheap commands run; of the others the subcommand and its options are looked up."""
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


def test_a_block_is_found_and_a_reason_passes_it_over(tmp_path: Path) -> None:
    """The pattern above sees what it should: else no page would ever fail."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\none = 1\n```\n\n<!-- not run: needs a network -->\n```python\ntwo\n```\n"
        "1. a list\n\n    ```python\n    if one:\n        three = 3\n    ```\n"
    )

    found = [text for _, text in blocks(page, {"python"})]

    assert found == ["one = 1\n", "if one:\n    three = 3\n"]
