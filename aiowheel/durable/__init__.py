"""Timers that survive a restart: a database keeps them, the wheel fires them. Rank 4.

`_timers` has the public class. Below it, from the store up: `operations` defines rows, operations
and results; `_store` is the interface that `_memory`, `_sqlite` and `_postgres` implement;
`_committer` writes; `_leases` keeps partitions; `_window` reads the timers that are due soon;
`_runner` calls handlers.
"""

from typing import TYPE_CHECKING, Any

from aiowheel.durable._fire import Fire as Fire
from aiowheel.durable._memory import MemoryStore as MemoryStore
from aiowheel.durable._recurrence import Cron as Cron
from aiowheel.durable._retry import Retry as Retry
from aiowheel.durable._sqlite import SQLiteStore as SQLiteStore
from aiowheel.durable._statistics import DurableStatistics as DurableStatistics
from aiowheel.durable._store import Store as Store
from aiowheel.durable._timers import DurableTimers as DurableTimers
from aiowheel.durable._timers import NewTimer as NewTimer
from aiowheel.durable.operations import DeadLetter as DeadLetter
from aiowheel.durable.operations import Row as Row
from aiowheel.durable.operations import Summary as Summary
from aiowheel.errors import BadRowError as BadRowError
from aiowheel.errors import DurableTimersClosedError as DurableTimersClosedError
from aiowheel.errors import StaleFireError as StaleFireError
from aiowheel.errors import StoreError as StoreError
from aiowheel.errors import StoreVersionError as StoreVersionError
from aiowheel.errors import TimerExistsError as TimerExistsError
from aiowheel.errors import UnknownHandlerError as UnknownHandlerError

if TYPE_CHECKING:
    from aiowheel.durable._postgres import PostgresStore as PostgresStore

__all__ = (
    "BadRowError",
    "Cron",
    "DeadLetter",
    "DurableStatistics",
    "DurableTimers",
    "DurableTimersClosedError",
    "Fire",
    "MemoryStore",
    "NewTimer",
    "PostgresStore",
    "Retry",
    "Row",
    "SQLiteStore",
    "StaleFireError",
    "Store",
    "StoreError",
    "StoreVersionError",
    "Summary",
    "TimerExistsError",
    "UnknownHandlerError",
)


def __getattr__(name: str) -> Any:
    if name == "PostgresStore":  # asyncpg is an extra
        from aiowheel.durable._postgres import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
