"""The base class of users' operations. Rank 2.

This module is a separate file because it must stay interpreted, over a compiled base. A compiled
class with type parameters gets its own `__dict__` and list of weak references, which mypyc frees
before Python 3.12 without clearing the references. A weak reference to an operation would then
crash the interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from aiowheel._callbacks import is_coroutine_function
from aiowheel._types import Delay
from aiowheel.purgatory._operation import Operation

T_co = TypeVar("T_co", covariant=True)


class DelayedOperation(Operation, Generic[T_co]):
    """An operation that waits in a purgatory; subclasses define its condition.

    Pass each operation to `Purgatory.watch` once. It ends when a check of one of its keys finds its
    condition met, when `force_complete` is called, or when its timeout elapses, whichever happens
    first.

    `try_complete`, `on_complete` and `on_expiration` are plain functions: they run inside the call
    that completes the operation and cannot await. Inside the call of `watch`, they run in the
    context of its caller, as any function does. After that, they run in a copy of that context,
    which `watch` makes when the operation begins to wait, and never in the context of a check.

    A subclass must not use the names of the base class for attributes or methods of its own; an
    attribute with one of these names is lost, or makes the calls of the purgatory fail: `_alarm`,
    `_checks`, `_context`, `_links`, `_on_waiter_done`, `_outcome`, `_owner`, `_timeout_ns`,
    `_waiter` and `_waiter_done`.

    The class has slots. In the compiled build an operation whose class has slots as well has no
    `__dict__`, which saves memory and work of the cyclic collector when many operations wait.

    Args:
        timeout: Seconds or a timedelta from the call of `watch`; None or `inf` for no timeout.

    Attributes:
        keys: The keys that it watches.
        completed_by: The key whose check completed it; None if it ended in another way.

    Raises:
        TypeError: *timeout* is not a number, a timedelta or None.
        ValueError: *timeout* is NaN.
    """

    # An interpreted base supports weak references already; a compiled base does not.
    __slots__ = () if Operation.__weakrefoffset__ else ("__weakref__",)

    #: The first method that the class defines as a coroutine function; `watch` then refuses it.
    asynchronous_method: ClassVar[str] = ""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.asynchronous_method = ""
        for name in ("try_complete", "on_complete", "on_expiration"):
            method = getattr(cls, name)
            if is_coroutine_function(method):
                cls.asynchronous_method = name
                break

    # At run time, the compiled methods of the base are used, which are faster.
    if TYPE_CHECKING:

        def __init__(self, timeout: Delay | None) -> None: ...

        def try_complete(self) -> bool:
            """Return whether the condition is met; any true value completes the operation.

            `watch` calls it, and so does every check of one of the keys while the operation is
            pending. It may call `force_complete` itself, as in Kafka. An exception fails only this
            operation.
            """
            ...

        def on_complete(self) -> T_co:
            """Do the delayed work; the returned value is the result of awaiting the operation.

            It runs exactly once, at completion or at expiration. An exception fails only this
            operation.
            """
            ...
