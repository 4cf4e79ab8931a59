"""A detector of keys that have had no touch for too long. Rank 3.

The class is separate from the compiled `IdleKeys` for two reasons. Before Python 3.12, mypyc gives
a generic class a list of weak references that it frees without clearing them: a dead `weakref.ref`
then crashes the interpreter. In addition, coroutines stay in interpreted files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from aiowheel._types import Delay
from aiowheel.recipes._idle_keys import IdleKeys
from aiowheel.timer import Timer

K = TypeVar("K", bound=Hashable)


class IdleDetector(IdleKeys, Generic[K]):
    """A set of keys, each of which falls idle if it is not touched for a timeout.

    `on_idle(key)` is called once a key has had no touch for more than the timeout. With two
    successive touches t1 <= t2, the key is idle at t1 + timeout if t2 > t1 + timeout or there is no
    t2; a touch exactly at t1 + timeout is in time. An idle key is no longer watched; a later touch
    watches it again. A touch after the timeout, but before the timer has fired, calls `on_idle`
    first.

    Iteration yields the keys that are watched when it begins. `len` is their number; a detector
    without keys is also true. `async with` closes the detector at the end of the block. Call the
    methods that change the detector in the timer's loop and thread.

    Args:
        timeout: Seconds or timedelta, more than 0 and less than 73 years.
        on_idle: A plain function. It runs in a copy of the context in which the detector was made.
            If it raises, the loop's exception handler gets the error.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: *timeout* is out of range.
        TypeError: An argument has the wrong type, or *on_idle* is a coroutine function, which
            would not be awaited.
        TimerClosedError: The timer is not open.
        ForeignLoopError: Called from another loop or thread than the timer's.
    """

    async def aclose(self) -> None:
        """Stop watching every key without calling `on_idle`; idempotent. O(number of keys).

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    if TYPE_CHECKING:

        def __init__(
            self, timeout: Delay, on_idle: Callable[[K], object], *, timer: Timer | None = None
        ) -> None: ...

        def touch(self, key: K) -> None:  # type: ignore[override]
            """Restart the timeout of *key*, and watch it if it is new.

            Cost: one dictionary look-up, one clock reading, one write.

            Raises:
                IdleDetectorClosedError: The detector has been closed.
                TimerClosedError: The timer has been closed.
                ForeignLoopError: Called from another loop or thread.
            """

        def discard(self, key: K) -> bool:  # type: ignore[override]
            """Stop watching *key* without calling `on_idle`. O(1).

            Returns:
                Whether *key* was watched. False after the detector or its timer was closed.

            Raises:
                ForeignLoopError: Called from another loop or thread.
            """
            ...

        def expires(self, key: K) -> float | None:  # type: ignore[override]
            """Return the time at which *key* falls idle if it is not touched before.

            Returns:
                Seconds on the scale of `timer.time()`; None for a key that is not watched.
            """
            ...

        def __iter__(self) -> Iterator[K]: ...
