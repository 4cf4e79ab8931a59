"""The version that a client has seen, as its request tells it. Rank 4.

Source: RFC 9110, sections 8.8.3 (ETag) and 13.1.2 (If-None-Match).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aiowheel.errors import BadInputError

_NUMBER = re.compile(r"[0-9]{1,18}")  # int() of thousands of digits takes long
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


class Seen(NamedTuple):
    """What the client has seen.

    Attributes:
        version: None: nothing that could be a version.
        conditional: It came in `If-None-Match`, whose "nothing new" is 304.
    """

    version: int | None
    conditional: bool


def seen_version(if_none_match: str | None, since: str | None, current: int) -> Seen:
    """Read the header `If-None-Match`, or else the query parameter `since`.

    Args:
        if_none_match: Entity tags such as `"17"`; tags we never gave count as nothing seen, `*` and
            a list with the current version as having seen that one.
        since: A version, as digits.
        current: The version now.

    Raises:
        BadInputError: *since* is no number from 0 to 10**18 - 1.
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
    """The entity tag of *version*."""
    return f'"{version}"'
