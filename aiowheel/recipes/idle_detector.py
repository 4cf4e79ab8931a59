"""Which of many keys has been silent for too long. Rank 3.

Interpreted, over a compiled base without type parameters: before Python 3.12 mypyc gives a generic
class a list of weak references that it frees without clearing them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from aiowheel.recipes._idle_keys import IdleKeys
from aiowheel.timer import Timer

K = TypeVar("K", bound=Hashable)


class IdleDetector(IdleKeys, Generic[K]):
    """Calls `on_idle(key)` once a key saw no touch for more than the timeout.

    With touches t1 <= t2, the key is idle at t1 + timeout if t2 > t1 + timeout or there is no t2; a
    touch at that very instant still counts. An idle key is forgotten, and a later touch begins
    anew. Timers being late changes nothing: a touch that overtakes one calls `on_idle` first.

    Args:
        timeout: Seconds or timedelta, more than 0 and finite.
        on_idle: A plain callable; what it raises goes to the loop's exception handler.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: *timeout* is out of range.
        TypeError: *timeout* is no number, or *on_idle* no plain callable: nobody would await it.
    """

    if TYPE_CHECKING:

        def __init__(
            self, timeout: object, on_idle: Callable[[K], object], *, timer: Timer | None = None
        ) -> None: ...

        def touch(self, key: K) -> None:  # type: ignore[override]
            """Note that *key* is alive now. One dictionary look-up, one clock reading, one write.

            Raises:
                TimerClosedError: The timer is not open.
                ForeignLoopError: Called from another loop or thread.
            """

        def discard(self, key: K) -> bool:  # type: ignore[override]
            """Forget *key* without calling `on_idle`; whether it was watched. O(1)."""
            ...
