"""Text from outside: whether it can be encoded, and a form that is safe to print. Rank 0."""

import re

_SCHEME = re.compile(r"[a-zA-Z0-9+.:-]+://")


def printable(text: object) -> str:
    """Return *text* with every character that is not printable escaped as in a Python literal.

    Keys and names may come from outside. Escaped, they cannot control the terminal or begin a line.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in plain)


def cut(text: str, most: int = 80) -> str:
    """Return *text*, cut to *most* characters with an ellipsis if it is longer."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def scheme_only(address: str) -> str:
    """Return the scheme of *address*, as `redis://...`; the rest may hold a password."""
    scheme = _SCHEME.match(address)
    return f"{scheme[0]}..." if scheme else "no scheme"


def error_repr(error: BaseException) -> str:
    """Return the name and the text of *error*; the `repr` of redis-py's errors has no text."""
    text = str(error)
    return f"{type(error).__name__}({repr(text) if text else ''})"


def as_unicode(text: str) -> str:
    """Return *text* with every lone surrogate, as of an undecodable file name, escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def is_unicode(text: str) -> bool:
    """Return whether *text* has no lone surrogates and can therefore be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
