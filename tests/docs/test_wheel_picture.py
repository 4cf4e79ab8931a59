"""The picture of the wheel shows what the wheel does."""

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.one_build

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """docs/draw_wheel.py, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("draw_wheel", DOCS / "draw_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_drawn_from_the_states_of_the_wheel(script: ModuleType) -> None:
    """`python docs/draw_wheel.py` makes it anew after a change of the wheel or of the script."""
    assert script.draw(script.states()) == (DOCS / "images/wheel.svg").read_text("utf-8")


def test_the_load_of_the_picture_uses_what_a_wheel_can_do(script: ModuleType) -> None:
    """Every timer ends, some cascade, and both levels are seen in use."""
    states = script.states()
    total = states[-1][1]

    assert total.pending == 0
    assert total.scheduled == total.cancelled + total.expired > 300
    assert min(total.cancelled, total.expired, total.cascaded) > 100
    assert all(any(sum(buckets[level]) for buckets, _ in states) for level in (0, 1))


def test_the_picture_is_well_formed_and_fetches_nothing(script: ModuleType) -> None:
    """Pages show it as an image: a script in it or an address would be refused there."""
    text = (DOCS / "images/wheel.svg").read_text("utf-8")

    assert ET.fromstring(text).tag.endswith("svg")
    assert "<script" not in text
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
