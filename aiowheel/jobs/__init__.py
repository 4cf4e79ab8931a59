"""Jobs over recorded data: transforms of the caller's DataFrames. Rank 5.

The transforms take and return DataFrames of the caller's own Spark session, run no action and know
no paths. They need `aiowheel[spark]`; importing this package does not.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiowheel.jobs.idle.transform import idle_events as idle_events
    from aiowheel.jobs.report.tables import report_tables as report_tables

__all__ = ("idle_events", "report_tables")  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    # Looked up when used: PySpark takes long to import, and `aiowheel doctor` works without it.
    if name == "idle_events":
        from aiowheel.jobs.idle.transform import idle_events

        return idle_events
    if name == "report_tables":
        from aiowheel.jobs.report.tables import report_tables

        return report_tables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
