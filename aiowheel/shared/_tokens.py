"""Tokens: a value of a counter with the epoch in which the counter reached it. Rank 4.

Source: the index of Consul's blocking queries and the revision of etcd's watches, with a name for
the history that the number belongs to.
"""

from __future__ import annotations

from aiowheel._arguments import safe_repr
from aiowheel.shared._store import GREATEST_VALUE


def token_of(epoch: str, value: int | None) -> str:
    """Return the token of a counter; None stands for a counter without a value."""
    return f"{epoch}:{'' if value is None else value}"


def parsed_token(token: object) -> tuple[str, int]:
    """Return the epoch and the value of *token*; -1 for a counter that had no value.

    Raises:
        TypeError: *token* is not a string.
        ValueError: *token* is malformed.
    """
    if not isinstance(token, str):
        raise TypeError(f'token must be a str "epoch:value", got {safe_repr(token)}')
    epoch, colon, digits = token.rpartition(":")
    known = digits == "" or (digits.isascii() and digits.isdigit() and len(digits) <= 19)
    value = int(digits) if known and digits else -1
    if not epoch or not colon or not known or value > GREATEST_VALUE:
        raise ValueError(f'token must be "epoch:value", got {safe_repr(token[:100])}')
    return epoch, value
