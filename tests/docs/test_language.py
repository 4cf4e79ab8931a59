"""Plain English: the documentation avoids certain words, and all pages open alike.

The subject of a sentence is a noun: a client, a callback, the driver, and not "who" or "what".
Programs do not ask, tell, hear or know. The lists below are phrases that break these rules; code
and output are not checked. `make lint` checks spelling with codespell.
"""

import ast
import re
from pathlib import Path

import pytest
from typer.main import get_command

from aiowheel.cli._app import COMMANDS, build_app

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "examples").rglob("*.md")),
]
SOURCES = sorted(
    path
    for folder in ("aiowheel", "benchmarks", "examples/demo")
    for path in (ROOT / folder).rglob("*.py")
)
EVERYWHERE = (
    r"for whoever",
    r"no ?body",
    r"somebody",
    r"anybody",
    r"everybody",
    r"(is|are|was|were|be|been) told",
    r"told (of|by|in)",
    r"hears? of",
    r"sees? off",
    r"lets? go of",
    r"who (is there|comes|waits|watches|looks)",
    r"of those who",
)
# A sentence whose subject is a clause: "What is due at once runs in slices".
SUBJECT_IS_A_CLAUSE = re.compile(r"(^|[.;:|-] +)(What|Whatever|Who) [a-z`][^?|.]*\.", re.MULTILINE)
IN_PAGES = (*EVERYWHERE, r"whoever", r"those who", r"asked", r"small print")


def prose(page: Path) -> str:
    """Return the page without its code, its output and its comments."""
    text = page.read_text("utf-8")
    text = re.sub(r"^( *)(```.*?^\1```)$", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|<!--.*?-->", "", text)


def blank(match: re.Match[str]) -> str:
    """Return as many empty lines as the match has."""
    return "\n" * match[0].count("\n")


def findings(text: str, phrases: tuple[str, ...]) -> list[str]:
    """Return line number and line of each phrase in the text."""
    pattern = re.compile(rf"\b({'|'.join(phrases)})\b", re.IGNORECASE)
    lines = enumerate(text.splitlines(), start=1)
    return [f"{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


def docstrings(source: str) -> list[str]:
    """Return every docstring of a module."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    tree = ast.walk(ast.parse(source))
    return [text for node in tree if isinstance(node, kinds) if (text := ast.get_docstring(node))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_avoids_the_phrases(page: Path) -> None:
    """Correct a finding instead of listing it as an exception."""
    assert findings(prose(page), IN_PAGES) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "changelog.md"],  # it includes CHANGELOG.md
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_subject_of_a_sentence_is_a_noun(page: Path) -> None:
    """Headings, questions and cells of a table may begin with "What"."""
    found = [match[0] for match in SUBJECT_IS_A_CLAUSE.finditer(prose(page))]

    assert found == []


def test_docstrings_avoid_the_phrases() -> None:
    """Most docstrings of the package are pages of the reference."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        source = path.read_text("utf-8")
        if findings(source, EVERYWHERE):  # perhaps in code or comments: parse only then
            found[path.relative_to(ROOT).as_posix()] = findings(
                "\n".join(docstrings(source)), EVERYWHERE
            )

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_help_of_every_command_avoids_the_phrases() -> None:
    """The help texts of options are checked as well."""
    texts: list[str] = []
    commands = [get_command(build_app(COMMANDS))]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        texts += [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]

    assert len(texts) > 100
    assert findings("\n".join(texts), IN_PAGES) == []


@pytest.mark.parametrize(
    "page",
    [each for each in PAGES if each.parent.parent.name == "docs" and each.stem != "index"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_a_page_opens_with_its_use(page: Path) -> None:
    """The first sentence says what a reader can do or knows after the page."""
    text = page.read_text("utf-8")
    opening = re.search(r"^# .*\n\n(.*)", text, re.MULTILINE)

    assert opening is not None
    assert re.match(r"After this page |Each |An? |`", opening[1]), opening[1]


def test_the_phrases_are_found() -> None:
    """A phrase is found in a sentence, but not in code."""
    text = "one\nFor whoever waits.\nNobody is told.\n`nobody`"

    assert findings(re.sub("`.*`", "", text), IN_PAGES) == [
        "2: For whoever waits.",
        "3: Nobody is told.",
    ]
