"""The counts of durable timers. Rank 4."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiowheel.timer import Histogram


class DurableStatistics(NamedTuple):
    """A snapshot of one `DurableTimers`; it counts this process, not the store.

    Attributes:
        resident: Timers in memory: those of the window that have not begun to fire.
        ready: Timers in memory that are due and wait for a fire in flight to end, or for a lease.
        in_flight: Fires that have begun and whose outcome is not committed yet.
        partitions: Partitions that this process owns; 0 after its lease has ended.
        scheduled: Timers written, including replacements and those of `schedule_in` whose
            transaction was rolled back.
        cancelled: Timers deleted by `cancel`.
        rescheduled: Timers moved.
        fired: Fires begun, including repeats and retries.
        acknowledged: Fires whose success was committed.
        retried: Attempts whose failure was committed and that are followed by another attempt.
        dead: Fires that became dead letters.
        skipped: Missed occurrences that were skipped.
        stale: Outcomes of fires that were refused, because another process owns the partition.
        commits: Group commits.
        committed: Operations in these commits.
        lease_changes: Partitions gained and lost.
        store_errors: Calls of the store that failed.
        lateness: Start of the fire minus its due time, a histogram in seconds.
        commit_times: The duration of a group commit, a histogram in seconds.
    """

    resident: int
    ready: int
    in_flight: int
    partitions: int
    scheduled: int
    cancelled: int
    rescheduled: int
    fired: int
    acknowledged: int
    retried: int
    dead: int
    skipped: int
    stale: int
    commits: int
    committed: int
    lease_changes: int
    store_errors: int
    lateness: Histogram
    commit_times: Histogram


class Counts:
    """The running counts behind `DurableStatistics`, by the same names."""

    def __init__(self) -> None:
        self.scheduled = 0
        self.cancelled = 0
        self.rescheduled = 0
        self.fired = 0
        self.acknowledged = 0
        self.retried = 0
        self.dead = 0
        self.skipped = 0
        self.stale = 0
        self.commits = 0
        self.committed = 0
        self.lease_changes = 0
        self.store_errors = 0
        self.lateness = Histogram()
        self.commit_times = Histogram()

    def snapshot(
        self, *, resident: int = 0, ready: int = 0, in_flight: int = 0, partitions: int = 0
    ) -> DurableStatistics:
        """Return the counts together with the present sizes."""
        counts: dict[str, Any] = {**vars(self)}
        counts |= {"lateness": self.lateness.copy(), "commit_times": self.commit_times.copy()}
        return DurableStatistics(resident, ready, in_flight, partitions, **counts)
