"""Every example runs and prints the text in its docstring.

The expected text is the indented end of the docstring, after a line `Prints:`; `...` in it stands
for any text, as in doctest.
"""

import ast
import runpy
import sys
import textwrap
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest
import structlog

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def promise(example: Path) -> str:
    """Return the expected output in the docstring of an example."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    _, found, text = docstring.partition("Prints:\n")
    assert found, f"{example.name}: the docstring has no `Prints:` paragraph"
    return textwrap.dedent(text).strip() + "\n"


def third_parties(example: Path) -> set[str]:
    """Return the imported packages that belong neither to Python nor to aiowheel."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"aiowheel"}


@pytest.mark.realtime
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_prints_its_documented_output(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The example raises no error, writes nothing on stderr, and prints the expected lines."""
    for package in third_parties(example):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])

    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        structlog.reset_defaults()

    printed = capfd.readouterr()
    assert printed.err == ""
    assert OutputChecker().check_output(promise(example), printed.out, ELLIPSIS), printed.out


def test_the_example_table_lists_every_example() -> None:
    """Readers choose an example in examples/README.md."""
    if not EXAMPLES:
        pytest.skip("there are no examples yet")
    table = (ROOT / "examples/README.md").read_text(encoding="utf-8")

    assert [each.name for each in EXAMPLES if each.name not in table] == []
