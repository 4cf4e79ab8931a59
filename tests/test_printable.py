"""Printed text contains no control characters."""

import pytest

from aiowheel._printable import printable

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain key", "plain key"),
        ("café 日本 🦊", "café 日本 🦊"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x9b31m", r"\x9b31m"),
        ("two\nlines\ttab\r", r"two\nlines\ttab\r"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\udcff", r"\udcff"),
        (7, "7"),
    ],
)
def test_unprintable_characters_are_escaped(text: object, shown: str) -> None:
    """Printable characters stay unchanged."""
    assert printable(text) == shown
