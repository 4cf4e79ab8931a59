"""benchmarks/README.md: the list of the files, and the command of each."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

FOLDER = Path(__file__).parents[2] / "benchmarks"
README = (FOLDER / "README.md").read_text("utf-8")


def test_the_readme_lists_every_benchmark() -> None:
    """Each module without an underscore is listed, and each listed file exists."""
    modules = [path for place in (FOLDER, FOLDER / "jobs") for path in place.glob("[a-z]*.py")]
    listed = set(re.findall(r"`([\w/]+\.py)`", README))

    assert listed == {path.relative_to(FOLDER).as_posix() for path in modules}


@pytest.mark.parametrize("module", re.findall(r"`python -m ([\w.]+)`", README))
def test_a_listed_program_can_be_run(module: str) -> None:
    """`python -m` finds the module of each command."""
    assert find_spec(module) is not None
