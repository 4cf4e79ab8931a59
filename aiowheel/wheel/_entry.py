"""One deadline in the wheel, and the links that hang it in a bucket. Rank 0: no clock, no loop.

Source: the intrusive doubly linked list of Kafka's TimerTaskEntry and TimerTaskList; the
bookkeeping follows Varghese & Lauck 1997, section 6.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from aiowheel.wheel._tally import Tally


# Acyclic: the cyclic collector never walks a million pending entries. The price is that whoever
# drops a bucket must unlink its entries first (Bucket.unlink_all), or the ring of links leaks.
@mypyc_attr(acyclic=True)
class Node:
    """Two links. A node in no bucket has neither."""

    __slots__ = ("_next", "_prev")

    def __init__(self) -> None:
        self._prev: Node | None = None
        self._next: Node | None = None

    def _unlink(self) -> None:
        before = self._prev
        after = self._next
        if before is not None and after is not None:
            before._next = after
            after._prev = before
            self._prev = None
            self._next = None

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it hangs in a wheel")


@mypyc_attr(acyclic=True, free_list_len=1)
class TimerEntry(Node):
    """A deadline and what the caller hung on it; made by :meth:`TimingWheel.schedule`.

    An entry is pending until it is cancelled or returned by ``advance``. All its methods are safe
    for ever after.
    """

    __slots__ = ("_deadline", "_filed", "_payload", "_tally")

    def __init__(self, deadline: i64, payload: object, tally: Tally | None) -> None:
        self._prev = None
        self._next = None
        # In this order, with the delay of a TimerHandle behind them, what a touch reads and writes
        # lies in one cache line of a compiled entry: at a million entries that is what it costs.
        self._deadline = deadline
        self._filed: i64 = 0  # the tick it hangs at; a later reschedule leaves it behind
        self._tally = tally  # None when not pending
        self._payload = payload

    @property
    def deadline(self) -> int:
        """The deadline exactly as given, in the wheel's unit."""
        return self._deadline

    @property
    def payload(self) -> object:
        """What was given to ``schedule``; None once cancelled."""
        return self._payload

    @property
    def pending(self) -> bool:
        """Whether the entry still waits: neither cancelled nor expired."""
        return self._tally is not None

    def cancel(self) -> bool:
        """Withdraw the entry and drop its payload.

        Returns:
            True exactly once, and only if the entry was still pending.

        Cost: O(1).
        """
        tally = self._tally
        if tally is None:
            return False
        self._unlink()
        self._tally = None
        self._payload = None
        tally.pending -= 1
        tally.cancelled += 1
        return True

    def drop(self) -> None:
        """Cut every reference: the wheel was dropped, or its owner closed it."""
        self._payload = None

    def __repr__(self) -> str:
        state = "pending" if self.pending else "finished"
        return f"<TimerEntry deadline={self.deadline} {state} payload={self.payload!r}>"
