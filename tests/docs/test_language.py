"""Plain English: the documentation does without certain words, and pages open alike.

A noun is the subject of a sentence: a client, a callback, the driver, and not "who" or "what".
Programs do not ask, tell, hear or know. The lists below are phrases that break these rules; code
and output are not read. Spelling is checked by codespell, in `make lint`.
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
    *sorted((ROOT / "examples").rglob("*.md")),
]
SOURCES = sorted((ROOT / "aiowheel").rglob("*.py"))
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
    """The page without its code, its output and its comments."""
    text = page.read_text("utf-8")
    text = re.sub(r"^( *)(```.*?^\1```)$", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|<!--.*?-->", "", text)


def blank(match: re.Match[str]) -> str:
    """As many lines, with nothing in them."""
    return "\n" * match[0].count("\n")


def findings(text: str, phrases: tuple[str, ...]) -> list[str]:
    """Line number and line of each phrase in the text."""
    pattern = re.compile(rf"\b({'|'.join(phrases)})\b", re.IGNORECASE)
    lines = enumerate(text.splitlines(), start=1)
    return [f"{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


def docstrings(source: str) -> list[str]:
    """Every docstring of a module."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    tree = ast.walk(ast.parse(source))
    return [text for node in tree if isinstance(node, kinds) if (text := ast.get_docstring(node))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_does_without_the_words(page: Path) -> None:
    """A finding is mended, not listed as an exception."""
    assert findings(prose(page), IN_PAGES) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "changelog.md"],  # it includes CHANGELOG.md
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_subject_of_a_sentence_is_a_noun(page: Path) -> None:
    """A heading, a question and a cell of a table may begin with "What"."""
    found = [match[0] for match in SUBJECT_IS_A_CLAUSE.finditer(prose(page))]

    assert found == []


def test_docstrings_do_without_the_words() -> None:
    """Those of the whole package: most of them are pages of the reference."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        source = path.read_text("utf-8")
        if findings(source, EVERYWHERE):  # in code or comments perhaps: only then it is parsed
            found[path.relative_to(ROOT).as_posix()] = findings(
                "\n".join(docstrings(source)), EVERYWHERE
            )

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_help_of_every_command_does_without_the_words() -> None:
    """Also that of the options."""
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
def test_a_page_opens_with_what_it_gives_its_reader(page: Path) -> None:
    """It says what a reader can do or knows after it."""
    text = page.read_text("utf-8")
    opening = re.search(r"^# .*\n\n(.*)", text, re.MULTILINE)

    assert opening is not None
    assert re.match(r"After this page |Each |An? |`", opening[1]), opening[1]


def test_the_words_are_found() -> None:
    """In a sentence, but not in code."""
    text = "one\nFor whoever waits.\nNobody is told.\n`nobody`"

    assert findings(re.sub("`.*`", "", text), IN_PAGES) == [
        "2: For whoever waits.",
        "3: Nobody is told.",
    ]
