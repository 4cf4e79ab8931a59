"""Formatting of time spans. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"))


def span_text(span_ns: int) -> str:
    """Format a span with three digits in a suitable unit: 1_234_567 is "1.23 ms"."""
    if span_ns == 0:
        return "0"
    for unit_ns, name in _UNITS:
        if abs(span_ns) < 999.5 * unit_ns:  # 999.5 would be rounded to 1000
            return f"{span_ns / unit_ns:.3g} {name}"
    seconds = span_ns / 1_000_000_000
    return f"{seconds:.3g} s" if abs(seconds) < 999.5 else f"{seconds:,.0f} s"


def mean_lateness_text(row: Mapping[str, Any]) -> str:
    """Format the mean lateness of the timeouts in a row of `simulate` or `tune`."""
    return span_text(round(row["late_sum_ns"] / max(1, row["expired"])))
