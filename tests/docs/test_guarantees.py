"""The page of guarantees: each row names tests that pytest collects, and a planted bug."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/explanation/guarantees.md").read_text("utf-8")
PROMISES = [
    tuple(cell.strip() for cell in line.strip("| \n").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| promise ")
]
NAMED = re.compile(r"`([\w/]+\.py::\w+)`")


class Collection:
    """A plugin that records the tests that pytest would run."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the tests, without their parameters."""
        self.names |= {
            "::".join(item.nodeid.removeprefix("tests/").partition("[")[0].split("::")[:2])
            for item in session.items
        }


def test_every_promise_has_a_test_and_a_place_for_a_bug() -> None:
    """Each row has three cells; the second one holds only names of tests."""
    assert len(PROMISES) > 40
    for promise, tests, bugs in PROMISES:
        assert NAMED.sub("", tests).replace(",", "").strip() == "", promise
        assert NAMED.findall(tests), promise
        assert bugs == "-" or re.fullmatch(r"`[\w-]+`(, `[\w-]+`)*", bugs), promise


def test_every_named_planted_bug_exists() -> None:
    """A name is the name of a patch without its suffix."""
    named = {name for _, _, bugs in PROMISES for name in re.findall(r"`([\w-]+)`", bugs)}

    assert named <= {patch.stem for patch in (ROOT / "tests/planted").glob("*.patch")}


def test_every_named_test_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deselected test, or one in a file that is not collected, checks nothing."""
    named = {name for _, tests, _ in PROMISES for name in NAMED.findall(tests)}
    files = sorted({f"tests/{name.partition('::')[0]}" for name in named})
    collection = Collection()
    monkeypatch.chdir(ROOT)

    pytest.main(["--collect-only", "-qqq", "-p", "no:cacheprovider", *files], plugins=[collection])

    assert named - collection.names == set()
