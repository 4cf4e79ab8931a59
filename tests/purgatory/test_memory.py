"""Finished operations are freed with their payloads, keys and lists."""

import gc
import random
import sys
import weakref

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory, accelerated
from aiowheel.purgatory._watchers import WatchLists


class Payload:
    """A large object."""

    def __init__(self, size: int = 0) -> None:
        self.content = bytes(size)


class Carrier(DelayedOperation[Payload]):
    """An operation that holds a payload."""

    def __init__(self, payload: Payload | None = None) -> None:
        super().__init__(30.0)
        self.payload = payload
        self.open = False

    def try_complete(self) -> bool:
        """Return whether it is open."""
        return self.open


def test_operations_take_weak_references() -> None:
    """This holds before, during and after the wait, on every interpreter and in both builds."""
    purgatory = Purgatory(timer=ManualTimer())
    new, waiting = Carrier(), Carrier()
    purgatory.try_complete_else_watch(waiting, ["a", "b"])
    references = [weakref.ref(new), weakref.ref(waiting), weakref.ref(waiting, id)]

    waiting.force_complete()
    del new, waiting
    gc.collect()

    assert [reference() for reference in references] == [None] * 3


class Slotted(DelayedOperation[None]):
    """An operation without a dictionary."""

    __slots__ = ("open",)
    open: bool

    def try_complete(self) -> bool:
        """Return whether it is open."""
        return self.open


def test_an_operation_with_slots_has_no_dictionary() -> None:
    """It has none in the compiled build, and completes like any other operation."""
    purgatory = Purgatory(timer=ManualTimer())
    operation = Slotted(1.0)
    operation.open = False

    purgatory.try_complete_else_watch(operation, ["a"])
    operation.open = True

    assert hasattr(operation, "__dict__") is not accelerated
    assert purgatory.check_and_complete("a") == 1


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("way", ["check", "force", "timeout", "cancel", "cancel for key", "full"])
def test_whatever_ends_an_operation_frees_its_payload(way: str) -> None:
    """The payload is freed at once and under all keys, without the cyclic collector."""
    timer = ManualTimer()
    purgatory = Purgatory(timer=timer, max_pending=1)
    payload = Payload()
    remains = weakref.ref(payload)
    operation = Carrier(payload)
    del payload
    if way == "full":
        purgatory.try_complete_else_watch(Carrier(), ["a"])
        with pytest.raises(RuntimeError):
            purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    else:
        purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
        operation.open = True
    if way == "check":
        purgatory.check_and_complete("b")
    elif way == "force":
        operation.force_complete()
    elif way == "timeout":
        timer.advance(30)
    elif way == "cancel":
        operation.cancel()
    elif way == "cancel for key":
        purgatory.cancel_for_key("c")
    assert remains() is not None

    del operation

    assert remains() is None


@pytest.mark.usefixtures("no_gc")
def test_payloads_completed_through_one_key_are_not_kept_by_the_others() -> None:
    """The second and third key are never checked."""
    purgatory = Purgatory(timer=ManualTimer())
    payloads: list[weakref.ref[Payload]] = []

    def watch(number: int) -> None:
        payload = Payload(100_000)
        payloads.append(weakref.ref(payload))
        operation = Carrier(payload)
        purgatory.try_complete_else_watch(operation, ["hot", "cold", ("cold", number)])
        operation.open = True

    for number in range(1000):
        watch(number)

    assert purgatory.check_and_complete("hot") == 1000

    assert {payload() for payload in payloads} == {None}


@pytest.mark.usefixtures("no_gc")
def test_a_class_of_operations_is_freed_after_the_last_of_them() -> None:
    """Such a class may be defined in a function and refer to the variables of the function."""

    class Local(Carrier):
        pass

    purgatory = Purgatory(timer=ManualTimer())
    carrier = Local()
    purgatory.try_complete_else_watch(carrier, ["k"])
    carrier.force_complete()
    reference = weakref.ref(Local)

    del carrier, Local
    gc.collect()

    assert reference() is None


class Topic:
    """A key that refers to the operations that wait for it."""

    def __init__(self) -> None:
        self.waiting: list[Carrier] = []


@pytest.mark.parametrize("purge_interval", [None, 0, 100])
def test_a_key_that_holds_its_operations_is_freed_with_them(purge_interval: int | None) -> None:
    """No reference cycle leads through links, which the cyclic collector does not traverse."""
    purgatory = Purgatory(timer=ManualTimer(), purge_interval=purge_interval)
    topic, carrier = Topic(), Carrier()
    topic.waiting.append(carrier)
    purgatory.try_complete_else_watch(carrier, [topic])
    carrier.force_complete()
    purgatory.check_and_complete(topic)
    reference = weakref.ref(topic)

    del topic, carrier
    gc.collect()

    assert reference() is None


def test_a_failed_operation_frees_its_payload_with_its_report() -> None:
    """The traceback holds the last reference."""
    timer = ManualTimer()
    purgatory = Purgatory(timer=timer)

    class Faulty(Carrier):
        def try_complete(self) -> bool:
            if self.open:
                raise ZeroDivisionError
            return False

    payload = Payload()
    remains = weakref.ref(payload)
    operation = Faulty(payload)
    del payload
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.open = True
    purgatory.check_and_complete("a")
    del operation

    try:
        timer.advance(0)
    except ExceptionGroup:
        pass
    else:
        pytest.fail("nothing was reported")

    assert remains() is None


@pytest.mark.slow
@pytest.mark.usefixtures("no_gc")
def test_many_on_three_keys_leave_nothing() -> None:
    """They complete in random order without a purge; all allocated memory is free again."""
    count = 30_000
    chance = random.Random(4)
    purgatory = Purgatory(timer=ManualTimer())

    def churn() -> int:
        operations: list[Carrier] = []
        for number in range(count):
            operation = Carrier()
            purgatory.try_complete_else_watch(operation, [("a", number), ("b", number % 1000), "c"])
            operations.append(operation)
        assert purgatory.watched == 3 * count
        chance.shuffle(operations)
        peak = sys.getallocatedblocks()
        for operation in operations:
            operation.force_complete()
        return peak

    churn()  # allocates what is kept, such as the wheel's levels
    before = sys.getallocatedblocks()
    peak = churn()
    after = sys.getallocatedblocks()

    assert (purgatory.watched, purgatory.top_keys()) == (0, [])
    assert after - before < (peak - before) / 1000
    assert sys.getsizeof(purgatory._lists.by_key) < 100_000


def test_the_table_of_keys_shrinks() -> None:
    """The table of keys shrinks with the number of keys, although some keys stay."""
    purgatory = Purgatory(timer=ManualTimer())
    operations = [Carrier() for _ in range(20_000)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])

    for operation in operations[10:]:
        operation.cancel()

    assert len(purgatory.top_keys(100)) == 10
    assert sys.getsizeof(purgatory._lists.by_key) < 100_000


@pytest.mark.parametrize(("size", "left"), [(1025, 128), (1024, -1), (2048, 255)])
def test_the_table_of_keys_is_copied_when_seven_eighths_are_gone(size: int, left: int) -> None:
    """A table that never had more than 1024 keys is not copied."""
    lists = WatchLists()
    operations = [Carrier() for _ in range(size)]
    for number, operation in enumerate(operations):
        lists.link(operation, (number,))
    table = lists.by_key

    copied_at: list[int] = []
    for operation in operations:
        lists.unlink(operation)
        if lists.by_key is not table:
            copied_at.append(len(lists.by_key))
            table = lists.by_key

    assert copied_at == [left] * (left >= 0)
    assert (lists.keys, lists.links, len(table)) == (0, 0, 0)


def test_keys_that_come_and_go_leave_nothing(timer: ManualTimer) -> None:
    """Thirty thousand different keys, emptied by checks and by timeouts."""
    purgatory = Purgatory(timer=timer)
    for number in range(30_000):
        operation = Carrier()
        purgatory.try_complete_else_watch(operation, [number])
        operation.open = True
        if number % 10:
            assert purgatory.check_and_complete(number) == 1

    timer.advance(31)

    assert purgatory.statistics().keys == 0
    assert len(purgatory._lists.by_key) == 0
    assert purgatory.watched == 0
