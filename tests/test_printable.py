"""Printed text contains no control characters and no passwords of addresses."""

import pytest

from aiowheel._printable import as_unicode, cut, error_repr, printable, scheme_only

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("k" * 8, "k" * 8), ("k" * 9, "kkkkk..."), ("é🦊" * 9, "é🦊é🦊é...")],
)
def test_long_texts_are_cut(text: str, shown: str) -> None:
    """A text that fits stays unchanged."""
    assert cut(text, 8) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("key", "key"), ("café\n🦊", "café\n🦊"), ("caf\udce9 é", r"caf\udce9 é")],
)
def test_lone_surrogates_are_escaped(text: str, shown: str) -> None:
    """All other characters stay unchanged."""
    assert as_unicode(text) == shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql+asyncpg://app:hidden@db/app", "postgresql+asyncpg://..."),
        ("delta:kafka://app:hidden@broker:9092/topic", "delta:kafka://..."),
        ("redis://app:hid://den@host", "redis://..."),
        ("app:hid@den://host", "no scheme"),
        ("hidden", "no scheme"),
        ("://hidden", "no scheme"),
    ],
)
def test_only_the_scheme_of_an_address_is_shown(address: str, shown: str) -> None:
    """The rest may hold a password."""
    assert scheme_only(address) == shown


def test_an_error_is_shown_with_its_text() -> None:
    """The errors of redis-py 8 have a `repr` without it."""

    class TerseError(Exception):
        def __repr__(self) -> str:
            return "auth:TerseError"

    assert error_repr(TerseError("no right to 'evalsha'")) == (
        "TerseError(\"no right to 'evalsha'\")"
    )
