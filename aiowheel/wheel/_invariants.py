"""What must hold of a wheel between two calls; for tests. Rank 0.

Asserts, so that a failure names the line; never called on production paths.
"""

from __future__ import annotations

from mypy_extensions import i64

from aiowheel.wheel._rings import Rings


def check_invariants(rings: Rings) -> None:
    """Assert that every entry hangs in the bucket its tick maps to and that the counts agree."""
    tally = rings._tally
    entries = rings.entries()
    assert len(entries) == tally.pending
    assert tally.pending + tally.cancelled + tally.expired == tally.scheduled
    assert rings._current <= rings._horizon
    assert all([entry._tally is tally for entry in entries])
    assert all(
        [
            rings._tick_of(entry._deadline) >= entry._filed
            for entry in entries
            if entry._deadline > rings._now
        ]
    )
    narrower: i64 = 1
    for level in rings.levels():
        assert level.width == narrower
        narrower = level.span
        assert level.base <= rings._current < level.limit
        for slot, bucket in enumerate(level.buckets):
            assert bucket.flagged == (level.occupied[slot] == 1)
            assert bucket.flagged or bucket.is_empty()
            for entry in bucket:
                assert entry._filed > rings._current
                assert (entry._filed - level.base) // level.width == slot
                assert level.slot_of(entry._filed) == slot
