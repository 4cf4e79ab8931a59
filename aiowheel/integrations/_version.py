"""The version or token that a client has seen, read from its request. Rank 4.

Source: RFC 9110, sections 8.8.3 (ETag) and 13.1.2 (If-None-Match).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiowheel.errors import BadInputError
from aiowheel.integrations._poll import called
from aiowheel.shared._store import GREATEST_VALUE, checked_value
from aiowheel.shared._tokens import parsed_token

_NUMBER = re.compile(r"[0-9]{1,19}")  # a limit, because int() is slow for thousands of digits
_TAG = re.compile(r'(?:W/)?"([^"]*)"')
#: Stands for the current version in `If-None-Match`.
ANY = "*"


def version_of(version: Callable[[], object]) -> int:
    """Call *version*, and return the current version.

    Raises:
        TypeError: The result is a coroutine, or not an int.
        ValueError: The result is out of range.
    """
    return checked_value("version", called("version", version))


def one_header(lines: Sequence[str]) -> str | None:
    """Return the value of a header with these lines; None without any (RFC 9110, 5.3)."""
    return ", ".join(lines) if lines else None


class SeenVersion(NamedTuple):
    """The version that a client has seen.

    Attributes:
        version: None if the request has no version that can be current.
        conditional: Whether the request has `If-None-Match`, to which the answer is 304.
    """

    version: int | None
    conditional: bool


def seen_version(if_none_match: str | None, since: str | None, current: int) -> SeenVersion:
    """Read the header `If-None-Match`, or without it the query parameter `since`.

    Args:
        if_none_match: Entity tags such as `"17"`. `*`, and a list with the current version, mean
            that the client has the current version; other tags mean that it has none.
        since: A version in decimal digits.
        current: The current version.

    Raises:
        BadInputError: *since* is not a number from 0 to 2**63 - 1.
    """
    if if_none_match is not None:
        tags = _TAG.findall(if_none_match)
        if if_none_match.strip() == ANY or str(current) in tags:
            return SeenVersion(current, conditional=True)
        return SeenVersion(None, conditional=True)
    if since is None:
        return SeenVersion(None, conditional=False)
    if not _NUMBER.fullmatch(since) or int(since) > GREATEST_VALUE:
        raise BadInputError(f"since must be a number from 0 to 2**63 - 1, got {since[:40]!r}")
    return SeenVersion(int(since), conditional=False)


class SeenToken(NamedTuple):
    """The token that a client has seen.

    Attributes:
        token: `ANY` for the current one; None if the request has no token.
        conditional: Whether the request has `If-None-Match`, to which the answer is 304.
    """

    token: str | None
    conditional: bool


def seen_token(if_none_match: str | None, since: str | None, epoch: str) -> SeenToken:
    """Read the header `If-None-Match`, or without it the query parameter `since`.

    Args:
        if_none_match: Entity tags such as `"epoch:17"`, of which the newest one counts, or `*`. If
            no tag is a token, the client has no token.
        since: A token.
        epoch: The current epoch of the store.

    Raises:
        BadInputError: *since* is not a token.
    """
    if if_none_match is not None:
        if if_none_match.strip() == ANY:
            return SeenToken(ANY, conditional=True)
        tokens = [tag for tag in _TAG.findall(if_none_match) if _is_token(tag)]
        newest = max(tokens, key=lambda each: _age(each, epoch), default=None)
        return SeenToken(newest, conditional=True)
    if since is not None and not _is_token(since):
        raise BadInputError(
            f'since must be a token "epoch:value", as the ETag has it, got {since[:40]!r}'
        )
    return SeenToken(since, conditional=False)


def _is_token(text: str) -> bool:
    try:
        parsed_token(text)
    except ValueError:
        return False
    return True


def _age(token: str, current: str) -> tuple[bool, int]:
    epoch, value = parsed_token(token)
    return epoch == current, value


def etag(version: int | str) -> str:
    """Return the entity tag of *version*."""
    return f'"{version}"'
