"""The contract of a store of shared counters, as checks that any store can run. Rank 4."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiowheel.shared import CounterStore
from aiowheel.shared._store import GREATEST_VALUE, LONGEST_KEY

_PATIENCE = 60.0  # seconds; a slow machine is no broken store

Connect = Callable[[], CounterStore]
StoreCheck = Callable[[Connect], Awaitable[None]]


def counter_store_checks() -> tuple[StoreCheck, ...]:
    """Return the checks that every `CounterStore` must pass.

    A check is a coroutine function. Its argument is a function that returns a new store, not opened
    yet, on the same counters each time. A broken promise raises AssertionError. Checks use keys of
    their own, so that they may share one server.

    Example:
        >>> @pytest.mark.parametrize("check", counter_store_checks())
        ... async def test_my_store(check):
        ...     await check(lambda: MyStore("address"))
    """
    return (
        a_counter_without_a_write_has_no_value,
        a_write_is_a_maximum,
        large_values_are_exact,
        any_legal_key_works,
        a_read_sees_writes_of_others_that_have_returned,
        one_epoch_for_every_process,
        a_hint_reaches_every_process,
        a_hint_never_promises_too_much,
        a_large_write_reaches_every_process,
        additions_at_the_same_time_all_count,
        writes_at_the_same_time_do_not_block_each_other,
        a_forgotten_counter_has_no_value,
        nothing_arrives_after_closing,
        a_closed_store_opens_again,
    )


class _Notes:
    """A listener that notes the greatest value of each counter."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.epochs: set[str] = set()
        self.gaps = 0
        self._news = asyncio.Event()

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        self.epochs.add(epoch)
        for key, value in values.items():
            self.values[key] = max(value, self.values.get(key, -1))
        self._news.set()

    def gap(self) -> None:
        self.gaps += 1
        self._news.set()

    async def have(self, wanted: Mapping[str, int]) -> None:
        """Wait until a hint has come for each of these values."""
        async with asyncio.timeout(_PATIENCE):
            while any(self.values.get(key, -1) < value for key, value in wanted.items()):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def _opened(
    connect: Connect, count: int = 1
) -> AsyncGenerator[list[tuple[CounterStore, _Notes]]]:
    opened: list[tuple[CounterStore, _Notes]] = []
    try:
        for _ in range(count):
            store, notes = connect(), _Notes()
            opened.append((store, notes))
            await store.open(notes)
        yield opened
    finally:
        for store, _ in opened:
            await store.aclose()


def _new_key() -> str:
    return f"check {secrets.token_hex(6)}"


async def a_counter_without_a_write_has_no_value(connect: Connect) -> None:
    """A read leaves it out; it is not 0."""
    key, other = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        await store.raise_to({key: 0})
        _, values = await store.read([key, other])
    assert values == {key: 0}


async def a_write_is_a_maximum(connect: Connect) -> None:
    """A smaller value changes nothing, whether it comes later or again."""
    one, two = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        await store.raise_to({one: 9, two: 9})
        await store.raise_to({one: 10, two: 8})
        await store.raise_to({one: 9})
        _, values = await store.read([one, two])
    assert values == {one: 10, two: 9}


async def large_values_are_exact(connect: Connect) -> None:
    """Beyond 2**53, where a double no longer tells two integers apart."""
    key = _new_key()
    async with _opened(connect) as [(store, notes)]:
        for value in (99, 100, 2**53, 2**53 + 1, GREATEST_VALUE - 1, GREATEST_VALUE):
            await store.raise_to({key: value})
            _, values = await store.read([key])
            assert values == {key: value}
            await notes.have({key: value})
            assert notes.values[key] == value


async def any_legal_key_works(connect: Connect) -> None:
    """Quotes, spaces, line ends, other scripts, and the longest key."""
    own = _new_key()
    odd = ["'", '"', "\\", "\n", "\x01", " ", "%s", "{", ":", "\u00e9", "\u4e2d", "\U0001f600"]
    keys = [f"{own}{each}" for each in odd]
    keys += [own.ljust(LONGEST_KEY, "x"), own.ljust(LONGEST_KEY, "\x01")]
    wanted = {key: number for number, key in enumerate(keys)}
    async with _opened(connect, 2) as [(store, _), (_, notes)]:
        await store.raise_to(wanted)
        await notes.have(wanted)
        _, values = await store.read(keys)
        assert values == wanted
        assert {key: notes.values[key] for key in keys} == wanted
        await store.add_one(keys)
        await notes.have({key: value + 1 for key, value in wanted.items()})


async def a_read_sees_writes_of_others_that_have_returned(connect: Connect) -> None:
    """Without this, a wait that reads after it subscribed could miss a value."""
    key = _new_key()
    async with _opened(connect, 2) as [(one, _), (two, _)]:
        for value in range(50):
            await one.raise_to({key: value})
            _, values = await two.read([key])
            assert values == {key: value}


async def one_epoch_for_every_process(connect: Connect) -> None:
    """Reads, writes and hints name the same history, before and after a process has come."""
    key = _new_key()
    async with _opened(connect, 2) as [(one, notes), (two, _)]:
        epochs = {await one.raise_to({key: 1}), await two.raise_to({key: 2})}
        epochs |= {await two.add_one([key]), (await one.read([key]))[0]}
        await notes.have({key: 3})
        epochs |= notes.epochs
    async with _opened(connect) as [(three, _)]:
        epochs.add((await three.read([]))[0])
    (epoch,) = epochs
    assert epoch
    assert ":" not in epoch


async def a_hint_reaches_every_process(connect: Connect) -> None:
    """The one that wrote included."""
    key = _new_key()
    async with _opened(connect, 3) as opened:
        for value, (store, _) in enumerate(opened):
            await store.raise_to({key: value})
            for _, notes in opened:
                await notes.have({key: value})


async def a_hint_never_promises_too_much(connect: Connect) -> None:
    """A hint for a write that lost against a greater value may come, but not beyond it."""
    key = _new_key()
    async with _opened(connect, 2) as [(one, _), (two, notes)]:
        for value in range(0, 100, 10):
            await asyncio.gather(one.raise_to({key: value}), two.raise_to({key: value + 5}))
        await notes.have({key: 95})
        _, values = await one.read([key])
    assert values == {key: 95}
    assert notes.values[key] == 95


async def a_large_write_reaches_every_process(connect: Connect) -> None:
    """More than fits one message of any server."""
    own = _new_key()
    wanted = {f"{own} {number}": number for number in range(5_000)}
    async with _opened(connect, 2) as [(one, _), (_, notes)]:
        await one.raise_to(wanted)
        await notes.have(wanted)
        _, values = await one.read(list(wanted))
    assert values == wanted


async def additions_at_the_same_time_all_count(connect: Connect) -> None:
    """Two processes that announce a change must not look like one."""
    key, other = _new_key(), _new_key()
    async with _opened(connect, 2) as [(one, _), (two, notes)]:
        for _ in range(20):
            await asyncio.gather(one.add_one([key]), two.add_one([key, other]))
        await notes.have({key: 40, other: 20})
        _, values = await one.read([key, other])
    assert values == {key: 40, other: 20}


async def writes_at_the_same_time_do_not_block_each_other(connect: Connect) -> None:
    """In whatever order each names its keys."""
    own = _new_key()
    keys = [f"{own} {number}" for number in range(50)]
    async with _opened(connect, 4) as opened:
        for round_number in range(10):
            await asyncio.gather(
                *(
                    store.raise_to(
                        dict.fromkeys(keys[:: 1 - place % 2 * 2], round_number * 10 + place)
                    )
                    for place, (store, _) in enumerate(opened)
                )
            )
        _, values = await opened[0][0].read(keys)
    assert values == dict.fromkeys(keys, 93)


async def a_forgotten_counter_has_no_value(connect: Connect) -> None:
    """The others and the epoch stay."""
    key, other = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        before = await store.raise_to({key: 7, other: 8})
        await store.forget([key, _new_key()])
        epoch, values = await store.read([key, other])
        assert (epoch, values) == (before, {other: 8})
        await store.raise_to({key: 1})
        assert await store.read([key]) == (before, {key: 1})


async def nothing_arrives_after_closing(connect: Connect) -> None:
    """Closing is idempotent, and leaves no task behind."""
    key = _new_key()
    before = asyncio.all_tasks()
    store, notes = connect(), _Notes()
    async with _opened(connect) as [(other, heard)]:
        await store.open(notes)
        await store.aclose()
        await store.aclose()
        await other.raise_to({key: 1})
        await heard.have({key: 1})
    assert key not in notes.values
    assert asyncio.all_tasks() == before


async def a_closed_store_opens_again(connect: Connect) -> None:
    """An application may start twice in one process."""
    key = _new_key()
    store = connect()
    for value in range(2):
        notes = _Notes()
        await store.open(notes)
        await store.raise_to({key: value})
        await notes.have({key: value})
        await store.aclose()
