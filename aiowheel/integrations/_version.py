"""The version that a client has seen, read from its request. Rank 4.

Source: RFC 9110, sections 8.8.3 (ETag) and 13.1.2 (If-None-Match).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aiowheel.errors import BadInputError

_NUMBER = re.compile(r"[0-9]{1,18}")  # a limit, because int() is slow for thousands of digits
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


class Seen(NamedTuple):
    """The version that a client has seen.

    Attributes:
        version: None if the request has no version that can be current.
        conditional: Whether the request has `If-None-Match`, to which the answer is 304.
    """

    version: int | None
    conditional: bool


def seen_version(if_none_match: str | None, since: str | None, current: int) -> Seen:
    """Read the header `If-None-Match`, or without it the query parameter `since`.

    Args:
        if_none_match: Entity tags such as `"17"`. `*`, and a list with the current version, mean
            that the client has the current version; other tags mean that it has none.
        since: A version in digits.
        current: The current version.

    Raises:
        BadInputError: *since* is not a number from 0 to 10**18 - 1.
    """
    if if_none_match is not None:
        tags = _TAG.findall(if_none_match)
        if if_none_match.strip() == "*" or str(current) in tags:
            return Seen(current, conditional=True)
        return Seen(None, conditional=True)
    if since is None:
        return Seen(None, conditional=False)
    if not _NUMBER.fullmatch(since):
        raise BadInputError(f"since must be a number from 0 to {10**18 - 1}, got {since[:40]!r}")
    return Seen(int(since), conditional=False)


def etag(version: int) -> str:
    """Return the entity tag of *version*."""
    return f'"{version}"'
