"""The picture of the wheel shows real states of the wheel."""

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.one_build

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Import docs/draw_wheel.py, which is not a module of the package."""
    spec = importlib.util.spec_from_file_location("draw_wheel", DOCS / "draw_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_drawn_from_the_states_of_the_wheel(script: ModuleType) -> None:
    """Run `python docs/draw_wheel.py` after a change of the wheel or of the script."""
    assert script.draw(script.states()) == (DOCS / "images/wheel.svg").read_text("utf-8")


def test_the_load_of_the_picture_uses_both_levels(script: ModuleType) -> None:
    """Every timer ends, some cascade, and both levels are used."""
    states = script.states()
    total = states[-1][1]

    assert total.pending == 0
    assert total.scheduled == total.cancelled + total.expired > 300
    assert min(total.cancelled, total.expired, total.cascaded) > 100
    assert all(any(sum(buckets[level]) for buckets, _ in states) for level in (0, 1))


def test_the_picture_is_well_formed_and_self_contained(script: ModuleType) -> None:
    """Pages embed the picture as an image, in which scripts and external addresses do not work."""
    text = (DOCS / "images/wheel.svg").read_text("utf-8")

    assert ET.fromstring(text).tag.endswith("svg")
    assert "<script" not in text
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
