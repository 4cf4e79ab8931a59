"""Other schedulers with persistent jobs, under the workload of durable timers.

Each scheduler is set up by its documentation. Jobs have payloads of 100 bytes; the handler only
records the lateness.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks._quantile import quantile
from benchmarks._side import Figures
from benchmarks.workloads.durable import FAR, PAYLOAD, SLOWLY, crowd_of, rate_of

_BATCH = 100  # jobs that PGQueuer fetches and acknowledges together
_BULK = 1000  # jobs of one bulk call

#: Lateness of each job in seconds. Module-level, because APScheduler finds the function of a job by
#: its name.
_lateness: list[float] = []


async def note(due: float, _: bytes = b"") -> None:
    """The handler of all jobs."""
    _lateness.append(time.time() - due)


class Peer(Protocol):
    """A connected scheduler, which fires jobs only inside `work`."""

    #: The maximum number of jobs of one call of `schedule`; 1 without a bulk call.
    bulk: int

    async def schedule(self, dues: Sequence[datetime]) -> None:
        """Write a job for each due time; return after the commit."""

    def work(self) -> AbstractAsyncContextManager[None]:
        """Fire due jobs while the block runs."""
        ...


class _PGQueuer:
    """PGQueuer on PostgreSQL: ten connections write, one fetches jobs in batches."""

    bulk = _BULK

    def __init__(self, pool: Any, address: str) -> None:
        self._address = address
        self._module: Any = import_module("pgqueuer")
        self.queries: Any = self._module.Queries(self._module.AsyncpgPoolDriver(pool))

    async def schedule(self, dues: Sequence[datetime]) -> None:
        now = datetime.now(UTC)
        await self.queries.enqueue(
            ["h"] * len(dues),
            [f"{due.timestamp():<{len(PAYLOAD)}.6f}".encode() for due in dues],
            [0] * len(dues),
            [max(due - now, timedelta(0)) for due in dues],
        )

    @asynccontextmanager
    async def work(self) -> AsyncGenerator[None, None]:
        connection = await import_module("asyncpg").connect(self._address)
        worker = self._module.PgQueuer(self._module.AsyncpgDriver(connection))

        async def handle(job: Any) -> None:
            await note(float(job.payload))

        worker.entrypoint("h")(handle)
        working = asyncio.create_task(worker.run(batch_size=_BATCH))
        try:
            yield
        finally:
            worker.shutdown.set()
            await working
            await connection.close()


@asynccontextmanager
async def _open_pgqueuer(address: str, _: Path) -> AsyncGenerator[Peer, None]:
    async with import_module("asyncpg").create_pool(address) as pool:
        peer = _PGQueuer(pool, address)
        await peer.queries.install()
        yield peer


class _APScheduler:
    """APScheduler 3 with its SQLAlchemy job store, on an SQLite file."""

    bulk = 1

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    async def schedule(self, dues: Sequence[datetime]) -> None:
        for due in dues:
            self._scheduler.add_job(  # blocks the loop; there is no other call
                f"{__name__}:note",
                "date",
                run_date=due,
                args=(due.timestamp(), PAYLOAD),
                misfire_grace_time=None,  # the default of one second would drop overdue jobs
            )

    @asynccontextmanager
    async def work(self) -> AsyncGenerator[None, None]:
        self._scheduler.resume()
        try:
            yield
        finally:
            self._scheduler.pause()


@asynccontextmanager
async def _open_apscheduler(_: str, folder: Path) -> AsyncGenerator[Peer, None]:
    stores: Any = import_module("apscheduler.jobstores.sqlalchemy")
    schedulers: Any = import_module("apscheduler.schedulers.asyncio")
    store = stores.SQLAlchemyJobStore(f"sqlite:///{folder / 'jobs.db'}")
    scheduler = schedulers.AsyncIOScheduler(jobstores={"default": store}, timezone=UTC)
    scheduler.start(paused=True)
    try:
        yield _APScheduler(scheduler)
    finally:
        scheduler.shutdown()


_PEERS: dict[str, Callable[[str, Path], AbstractAsyncContextManager[Peer]]] = {
    "pgqueuer": _open_pgqueuer,
    "apscheduler": _open_apscheduler,
}


async def peer(
    program: str, address: str, pending: int, operations: int, overdue: int
) -> AsyncGenerator[Figures, None]:
    """Measure scheduling by 100 tasks and in bulk, firing on time, and overdue jobs.

    Args:
        program: A name of `_PEERS`.
        address: The address of a PostgreSQL server; "" for an SQLite file.
        pending: Number of jobs in the store beforehand, if the scheduler has a bulk call; written
            one by one they would take half an hour.
        operations: Number of jobs of one figure in a round; a tenth by 100 tasks, a fortieth on
            time.
        overdue: Number of jobs that are due when the scheduler starts; a tenth without a bulk call.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with _PEERS[program](address, Path(folder)) as scheduler:
            if scheduler.bulk > 1:
                await _write(scheduler, [datetime.now(UTC) + FAR] * pending)
            while True:
                gc.collect()
                figures = await _schedule(scheduler, operations)
                on_time = max(1, operations // 40)
                lead = 1 + 2 * on_time / figures["schedule_100"]  # writing takes half of this time
                figures |= await _on_time(scheduler, on_time, lead)
                figures |= await _overdue(scheduler, overdue)
                yield figures


async def _write(scheduler: Peer, dues: Sequence[datetime]) -> None:
    for first in range(0, len(dues), scheduler.bulk):
        await scheduler.schedule(dues[first : first + scheduler.bulk])


async def _schedule(scheduler: Peer, operations: int) -> Figures:
    far = [datetime.now(UTC) + FAR]

    async def one(_place: int, _step: int) -> None:
        await scheduler.schedule(far)

    figures = {"schedule_100": await crowd_of(100, operations // 10, one)}
    if scheduler.bulk > 1:
        figures["bulk"] = await rate_of(operations, _write(scheduler, far * operations))
    return figures


async def _on_time(scheduler: Peer, number: int, lead: float) -> Figures:
    """Write jobs, the first due after *lead* seconds, which exceeds the writing time; fire them."""
    start = datetime.now(UTC) + timedelta(seconds=lead)
    await _write(scheduler, [start + timedelta(seconds=n / SLOWLY) for n in range(number)])
    await _fire(scheduler, number)
    return {"late_slow_p99_ms": quantile(sorted(_lateness), 0.99) * 1e3}


async def _overdue(scheduler: Peer, overdue: int) -> Figures:
    number = overdue if scheduler.bulk > 1 else max(1, overdue // 10)
    await _write(scheduler, [datetime.now(UTC)] * number)
    return {"fires": await rate_of(number, _fire(scheduler, number))}


async def _fire(scheduler: Peer, number: int) -> None:
    """Run the scheduler until *number* jobs have fired."""
    _lateness.clear()
    async with scheduler.work():
        while len(_lateness) < number:  # noqa: ASYNC110 - setting an event has a cost
            await asyncio.sleep(0.002)
