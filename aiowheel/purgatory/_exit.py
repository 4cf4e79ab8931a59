"""How each operation ends, exactly once. Rank 2.

Source: Kafka's `forceComplete` and its purge by the estimated total of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from aiowheel._events import emit
from aiowheel.abc import Instrument
from aiowheel.purgatory._counters import Counters
from aiowheel.purgatory._delivery import deliver
from aiowheel.purgatory._ledger import Ledger
from aiowheel.purgatory._operation import Operation, Place, abandoned
from aiowheel.purgatory._outcome import Outcome
from aiowheel.purgatory._thresholds import ThresholdOperation
from aiowheel.purgatory._watch_lists import WatchLists
from aiowheel.timer._driver import Driver

_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED
_FAILED: Final = Outcome.FAILED


class Exit(Place):
    """The way out of a purgatory.

    Args:
        name: For events and instruments.
        driver: Whose wheel keeps the timeouts.
        purge_interval: None: a finished operation leaves its lists at once. A count: it stays until
            the estimated total exceeds the pending operations by more than that.
        instruments: Told of every finished operation.
    """

    def __init__(
        self,
        name: str,
        driver: Driver,
        purge_interval: int | None,
        instruments: tuple[Instrument, ...],
    ) -> None:
        self.name = name
        self.driver = driver
        self.lists = WatchLists()
        self.counters = Counters()
        self.pending: i64 = 0
        self.ledger = Ledger()
        self.estimated_total: i64 = 0
        self.purges: i64 = 0
        self.on_empty: Callable[[], object] | None = None  # called when the last one has left
        self.asked: Operation | None = None  # whose condition is being checked now
        self.asked_for: object = None  # by which key
        self._purge_interval: i64 = -1 if purge_interval is None else purge_interval
        self._instruments = instruments

    def finish(self, operation: Operation, outcome: Outcome, error: Exception | None) -> None:
        if (outcome is _COMPLETED or outcome is _EXPIRED) and abandoned(operation):
            outcome = _CANCELLED
        operation._outcome = outcome
        operation._place = None  # what is over keeps no purgatory alive
        operation._finished_ns = self.driver.now_ns()
        if operation is self.asked:
            operation.completed_by = self.asked_for
        alarm = operation._alarm
        if alarm is not None:
            operation._alarm = None
            alarm.cancel()
            self._leave(operation)
        result: object = None
        if outcome is _COMPLETED or outcome is _EXPIRED:
            try:
                result = operation.on_complete()
                if outcome is _EXPIRED:
                    operation.on_expiration()
            except BaseException as caught:  # it fails alone
                error = failure(caught)
                operation._outcome = outcome = _FAILED
                if isinstance(caught, (SystemExit, KeyboardInterrupt)):  # and leaves the loop
                    self.ledger.record(operation)
                    deliver(operation, None, error)
                    raise
        self.ledger.record(operation)
        delivered = deliver(operation, result, error)
        if outcome is _FAILED:
            emit("aiowheel.operation_failed", purgatory=self.name, operation=told(operation))
            if not delivered:
                self.report(operation, error)
        for instrument in self._instruments:
            try:
                instrument.operation_finished(self.name, operation)
            except Exception as caught:  # nor may an instrument stop the work
                self.report(operation, caught)

    def report(self, operation: Operation, error: Exception | None) -> None:
        """Tell the loop's exception handler what went wrong and nobody awaits."""
        self.driver.report(
            {
                "message": f"Exception in delayed operation {told(operation)}",
                "exception": error,
                "operation": operation,
            }
        )

    def _leave(self, operation: Operation) -> None:
        self.pending -= 1
        if isinstance(operation, ThresholdOperation):
            self.counters.unlink(operation)
        elif self._purge_interval < 0:
            self.lists.unlink(operation)
        else:  # its links stay; but the cyclic collector does not see them, nor the keys behind
            operation._links = None
        if self._purge_interval < 0:
            self.estimated_total -= 1
        elif self.estimated_total - self.pending > self._purge_interval:
            self._purge()
        if self.pending == 0 and self.on_empty is not None:
            self.on_empty()

    def _purge(self) -> None:
        self.estimated_total = self.pending
        self.purges += 1
        self.lists.purge()

    def sweep(self) -> None:
        """Purge once more, whatever the estimate: nobody will come and find what is left."""
        if self.estimated_total > self.pending:
            self._purge()


def told(operation: Operation) -> str:
    """*operation* for people to read; its repr, and those of its keys, are their owners' code."""
    try:
        return repr(operation)
    except Exception:
        return f"<{type(operation).__name__}>"


def failure(error: BaseException) -> Exception:
    """*error* as an awaiting task may get it.

    There StopIteration cannot be raised, and CancelledError would say that the task was cancelled;
    what else is no Exception would end more than the task.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"a delayed operation raised {error!r}")
    wrapped.__cause__ = error
    return wrapped
