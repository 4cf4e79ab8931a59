"""A changed function replaces the existing one; other code cannot be changed."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest

from .swap import swap_of

pytestmark = pytest.mark.one_build

SOURCE = """
LIMIT = 10

def plain(x):
    return x + 1

def outer(x):
    def inner():
        return x + 2
    return inner()

def default(x, y=3):
    return x

class Thing:
    share = 4

    def method(self):
        return 5

    @staticmethod
    def static():
        return 6

    @property
    def read(self):
        return 7

small = lambda x: x < 8
"""


def module_of(source: str) -> ModuleType:
    """Return a module with this source."""
    module = ModuleType("changed")
    module.__file__ = "changed.py"
    exec(compile(source, "changed.py", "exec", dont_inherit=True), vars(module))
    return module


@pytest.mark.parametrize(
    ("before", "after", "call", "value"),
    [
        ("x + 1", "x - 1", "plain(9)", 8),
        ("x + 2", "x - 2", "outer(9)", 7),
        ("return 5", "return 50", "Thing().method()", 50),
        ("return 6", "return 60", "Thing.static()", 60),
        ("return 7", "return 70", "Thing().read", 70),
        ("x < 8", "x <= 8", "small(8)", True),
        ("return x\n\n", "return not x\n\n\n\n", "default(1)", False),
    ],
)
def test_a_function_is_changed_in_its_place(
    before: str, after: str, call: str, value: object
) -> None:
    """A function can be changed wherever it is defined, even if later lines shift."""
    module = module_of(SOURCE)
    assert SOURCE.count(before) == 1
    swap = swap_of(module, SOURCE, SOURCE.replace(before, after))

    assert swap
    for function, code in swap:
        function.__code__ = code
    assert eval(call, vars(module)) == value


def test_a_frozen_function_is_changed_in_its_place() -> None:
    """`gc.freeze`, which hides functions from the collector, is called before the tests run."""
    module = module_of(SOURCE)
    gc.freeze()
    frozen = gc.get_freeze_count()

    assert swap_of(module, SOURCE, SOURCE.replace("x + 1", "x - 1"))
    assert gc.get_freeze_count() >= frozen


@pytest.mark.parametrize("change", [("10", "11"), ("y=3", "y=4"), ("share = 4", "share = 5")])
def test_code_of_the_import_cannot_be_changed(change: tuple[str, str]) -> None:
    """Constants, defaults and class attributes already have their values."""
    assert swap_of(module_of(SOURCE), SOURCE, SOURCE.replace(*change)) is None


def test_a_deleted_function_cannot_be_changed() -> None:
    """The result is None for a function that the module has deleted."""
    source = SOURCE + "\ndel plain\n"

    assert swap_of(module_of(source), source, source.replace("x + 1", "x - 1")) is None
