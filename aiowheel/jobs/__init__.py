"""Jobs over recorded data: transforms of the caller's DataFrames. Rank 5.

The transforms take and return DataFrames of the caller's own Spark session. They run no action and
read no paths. They need `aiowheel[spark]`; importing this package does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from aiowheel.errors import MissingExtraError

if TYPE_CHECKING:
    from aiowheel.jobs.idle.transform import idle_events as idle_events
    from aiowheel.jobs.operations.transform import Settled as Settled
    from aiowheel.jobs.operations.transform import settle_operations as settle_operations
    from aiowheel.jobs.report.tables import report_tables as report_tables
    from aiowheel.jobs.wheels.drawn_load import Waits as Waits
    from aiowheel.jobs.wheels.simulate import simulate as simulate
    from aiowheel.jobs.wheels.tune import tune as tune

_HOMES = {
    "Settled": "operations.transform",
    "Waits": "wheels.drawn_load",
    "idle_events": "idle.transform",
    "report_tables": "report.tables",
    "settle_operations": "operations.transform",
    "simulate": "wheels.simulate",
    "tune": "wheels.tune",
}

__all__ = (  # pyright: ignore[reportUnsupportedDunderAll]
    "Settled",
    "Waits",
    "idle_events",
    "report_tables",
    "settle_operations",
    "simulate",
    "tune",
)


def __getattr__(name: str) -> object:
    # Resolved on first use: importing PySpark takes long, and `aiowheel doctor` works without it.
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"aiowheel.jobs.{home}")
    except ModuleNotFoundError as error:
        raise MissingExtraError("spark") from error
    return getattr(module, name)
