"""The class that users derive from. Rank 2.

Interpreted, over a compiled base: a compiled class with type parameters gets a `__dict__` and a
list of weak references of its own, and before Python 3.12 mypyc frees them without clearing the
references: a weak reference to an operation then crashes the interpreter.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from aiowheel.purgatory._operation import Operation

T_co = TypeVar("T_co", covariant=True)


class DelayedOperation(Operation, Generic[T_co]):
    """Subclass it with the condition to wait for; give it to `Purgatory.watch`, once.

    It completes when its condition is found true at a check of one of its keys, when somebody
    forces it, or when its timeout elapses; whoever comes first.

    It has slots: in the compiled build a subclass that has them, too, needs no dictionary for each
    operation, which spares memory and, where many wait, the cyclic collector's time.

    Args:
        timeout: Seconds or timedelta from the moment it is watched; `inf` for none.

    Raises:
        TypeError: *timeout* is no number.
        ValueError: *timeout* is NaN.
    """

    # An interpreted base takes weak references already, a compiled one does not.
    __slots__ = () if Operation.__weakrefoffset__ else ("__weakref__",)

    def on_complete(self) -> T_co:
        """Do what had to wait; the result of awaiting. Exactly once, expiration included.

        What it raises fails this operation alone.
        """
        return cast(T_co, None)
