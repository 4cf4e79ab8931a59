"""Values inside nested JSON, by a path such as `conn.uid` or `hotspots[].id`. Rank 4."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import cast

from aiowheel.readers._record import Names

Object = dict[str, object]

#: The most pairs of one row. Their number is a product of lengths, so a short row could have
#: billions. Pairs of a single key or a single time do not count.
MOST_PAIRS = 10_000


def values_of(row: Object, key: Names, time: str) -> list[tuple[object, object]]:
    """Return the key and the time of each touch in *row*; a missing value is None.

    A top-level name spelled like the whole path takes precedence: Zeek writes `id.orig_h`.
    ``name[]`` stands for every element of a list. If the key and the time lie in the same list,
    each element yields its own pair; otherwise each key is paired with each time.

    Raises:
        ValueError: Keys and times of different lists make more than ``MOST_PAIRS`` pairs.
    """
    if len(key) == 1 and key[0] in row and time in row:
        return [(row[key[0]], row[time])]
    steps = [_steps(row, name) for name in key]
    present = (path for path in steps if any(value is not None for value in _values(row, path)))
    parts = list(_parts(row, next(present, steps[0]), _steps(row, time)))
    crossed = sum(len(keys) * len(times) for keys, times in parts if min(len(keys), len(times)) > 1)
    if crossed > MOST_PAIRS:
        raise ValueError(f"more than {MOST_PAIRS:,} pairs of keys and times from different lists")
    return [pair for keys, times in parts for pair in product(keys, times)]


def _steps(row: Object, path: str) -> list[str]:
    return [path] if path in row else path.split(".")


def _parts(
    node: object, key: Sequence[str], time: Sequence[str]
) -> Iterator[tuple[list[object], list[object]]]:
    """Follow both paths, together as long as their steps are equal; yield keys with their times."""
    if key[0] == time[0] and len(key) > 1 and len(time) > 1:
        for inner in _inner(node, key[0]):
            yield from _parts(inner, key[1:], time[1:])
    else:
        yield _values(node, key), _values(node, time)


def _values(node: object, path: Sequence[str]) -> list[object]:
    nodes = [node]
    for step in path:
        nodes = [inner for outer in nodes for inner in _inner(outer, step)]
    return nodes


def _inner(node: object, step: str) -> list[object]:
    if not isinstance(node, dict):
        return [None]
    fields = cast("Object", node)
    if step in fields or not step.endswith("[]"):
        return [fields.get(step)]
    elements = fields.get(step.removesuffix("[]"))
    return cast("list[object]", elements) if isinstance(elements, list) else [None]
