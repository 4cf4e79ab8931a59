"""The contract of a store of shared counters, as checks for any store. Rank 4."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiowheel.shared import CounterStore
from aiowheel.shared._store import GREATEST_VALUE, LONGEST_KEY

_PATIENCE = 60.0  # seconds; long enough for a slow machine

Connect = Callable[[], CounterStore]
StoreCheck = Callable[[Connect], Awaitable[None]]


def counter_store_checks() -> tuple[StoreCheck, ...]:
    """Return the checks that every `CounterStore` must pass.

    A check is a coroutine function. Its argument is a function that returns a new store, which is
    not open yet and has the same counters each time. A check that fails raises AssertionError.
    Checks use their own keys, so that they may share one server.

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
        a_listing_has_what_begins_with_a_prefix,
        a_listing_in_pages_has_every_counter,
        a_counter_changes_only_from_the_expected_value,
        a_change_that_is_refused_gives_no_hint,
        one_of_many_processes_changes_a_counter,
        a_large_change_is_one_call,
        every_process_reads_one_clock,
        nothing_arrives_after_closing,
        a_closed_store_opens_again,
    )


class _Notes:
    """A listener that records the greatest value of each counter."""

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
        """Wait until each of these values has arrived in a hint."""
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
    """A read does not return the counter, not even as 0."""
    key, other = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        await store.raise_to({key: 0})
        _, values = await store.read([key, other])
    assert values == {key: 0}


async def a_write_is_a_maximum(connect: Connect) -> None:
    """A smaller value changes nothing, even if it was written before."""
    one, two = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        await store.raise_to({one: 9, two: 9})
        await store.raise_to({one: 10, two: 8})
        await store.raise_to({one: 9})
        _, values = await store.read([one, two])
    assert values == {one: 10, two: 9}


async def large_values_are_exact(connect: Connect) -> None:
    """Values above 2**53, which a double does not represent exactly, are read unchanged."""
    key = _new_key()
    async with _opened(connect) as [(store, notes)]:
        for value in (99, 100, 2**53, 2**53 + 1, GREATEST_VALUE - 1, GREATEST_VALUE):
            await store.raise_to({key: value})
            _, values = await store.read([key])
            assert values == {key: value}
            await notes.have({key: value})
            assert notes.values[key] == value


async def any_legal_key_works(connect: Connect) -> None:
    """Keys may have quotes, spaces, line ends, letters of any script, and the full length."""
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
    """Without this rule, a wait that reads after it subscribed could miss a value."""
    key = _new_key()
    async with _opened(connect, 2) as [(one, _), (two, _)]:
        for value in range(50):
            await one.raise_to({key: value})
            _, values = await two.read([key])
            assert values == {key: value}


async def one_epoch_for_every_process(connect: Connect) -> None:
    """Reads, writes and hints of all processes have the same epoch, also of a later process."""
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
    """The hint also reaches the process that wrote."""
    key = _new_key()
    async with _opened(connect, 3) as opened:
        for value, (store, _) in enumerate(opened):
            await store.raise_to({key: value})
            for _, notes in opened:
                await notes.have({key: value})


async def a_hint_never_promises_too_much(connect: Connect) -> None:
    """No hint has a greater value than the counter, even when two processes write at once."""
    key = _new_key()
    async with _opened(connect, 2) as [(one, _), (two, notes)]:
        for value in range(0, 100, 10):
            await asyncio.gather(one.raise_to({key: value}), two.raise_to({key: value + 5}))
        await notes.have({key: 95})
        _, values = await one.read([key])
    assert values == {key: 95}
    assert notes.values[key] == 95


async def a_large_write_reaches_every_process(connect: Connect) -> None:
    """The values are too many for one message of any server."""
    own = _new_key()
    wanted = {f"{own} {number}": number for number in range(5_000)}
    async with _opened(connect, 2) as [(one, _), (_, notes)]:
        await one.raise_to(wanted)
        await notes.have(wanted)
        _, values = await one.read(list(wanted))
    assert values == wanted


async def additions_at_the_same_time_all_count(connect: Connect) -> None:
    """Two additions at the same time add two."""
    key, other = _new_key(), _new_key()
    async with _opened(connect, 2) as [(one, _), (two, notes)]:
        for _ in range(20):
            await asyncio.gather(one.add_one([key]), two.add_one([key, other]))
        await notes.have({key: 40, other: 20})
        _, values = await one.read([key, other])
    assert values == {key: 40, other: 20}


async def writes_at_the_same_time_do_not_block_each_other(connect: Connect) -> None:
    """No deadlock arises when processes pass the same keys in different orders."""
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
    """The other counters and the epoch stay."""
    key, other = _new_key(), _new_key()
    async with _opened(connect) as [(store, _)]:
        before = await store.raise_to({key: 7, other: 8})
        await store.forget([key, _new_key()])
        epoch, values = await store.read([key, other])
        assert (epoch, values) == (before, {other: 8})
        await store.raise_to({key: 1})
        assert await store.read([key]) == (before, {key: 1})


async def _listed(store: CounterStore, prefix: str, limit: int = 1000) -> dict[str, int]:
    """Return the counters of all pages of a listing."""
    found: dict[str, int] = {}
    after: str | None = ""
    while after is not None:
        page = await store.scan(prefix, after, limit)
        found |= page.values
        after = page.after
    return found


async def a_listing_has_what_begins_with_a_prefix(connect: Connect) -> None:
    """The prefix is plain text, and counters without it are not listed."""
    own = _new_key()
    prefixes = ["a", "a*", "a?", "[a]", "\\", "%", "_", "'", "\u00e9", "\U0001f600"]
    wanted = {f"{own}{prefix}{end}": 1 for prefix in prefixes for end in ("", "b", "\n")}
    async with _opened(connect, 2) as [(one, _), (two, _)]:
        epoch = await one.raise_to(wanted)
        for prefix in prefixes:
            start = own + prefix
            expected = {key for key in wanted if key.startswith(start)}
            assert set(await _listed(two, start)) == expected
        assert await _listed(two, f"{own}z") == {}
        assert wanted.items() <= (await _listed(two, "")).items()
        assert (await two.scan(own)).epoch == epoch


async def a_listing_in_pages_has_every_counter(connect: Connect) -> None:
    """The pages have every counter that stays, while others are written and forgotten."""
    own = _new_key()
    wanted = {f"{own} {number:04}": number for number in range(2_000)}
    coming: list[str] = []
    found: dict[str, int] = {}
    after: str | None = ""
    async with _opened(connect) as [(store, _)]:
        await store.raise_to(wanted)
        while after is not None:
            page = await store.scan(own, after, 100)
            found |= page.values
            after = page.after
            await store.forget(coming)
            coming = [f"{own} {len(found):04}+{number}" for number in range(50)]
            await store.raise_to(dict.fromkeys(coming, 1))
    assert wanted.items() <= found.items()


async def a_counter_changes_only_from_the_expected_value(connect: Connect) -> None:
    """A change may set, raise or remove a counter; the answer has the changed keys."""
    one, two, three, four = (_new_key() for _ in range(4))
    async with _opened(connect, 2) as [(store, _), (other, notes)]:
        epoch = await store.raise_to({one: 5, two: 5, three: 5})
        answer = await store.compare_and_raise(
            {one: (5, 6), two: (4, 7), three: (None, 8), four: (None, 0)}
        )
        assert answer == (epoch, {one, four})
        await notes.have({one: 6, four: 0})
        assert (await other.read([one, two, three, four]))[1] == {one: 6, two: 5, three: 5, four: 0}
        answer = await other.compare_and_raise({one: (5, None), two: (5, None), four: (0, None)})
        assert answer == (epoch, {two, four})
        assert (await store.read([one, two, three, four]))[1] == {one: 6, three: 5}
        assert await other.compare_and_raise({two: (5, 6)}) == (epoch, set())
        answer = await other.compare_and_raise({two: (None, GREATEST_VALUE - 1)})
        assert answer == (epoch, {two})
        answer = await other.compare_and_raise({two: (GREATEST_VALUE - 1, GREATEST_VALUE)})
        assert answer == (epoch, {two})


async def a_change_that_is_refused_gives_no_hint(connect: Connect) -> None:
    """No hint has the value of a refused change."""
    key, other = _new_key(), _new_key()
    async with _opened(connect) as [(store, notes)]:
        await store.raise_to({key: 1})
        await store.compare_and_raise({key: (2, 9), other: (None, 3)})
        await notes.have({key: 1, other: 3})
        await store.raise_to({key: 2})
        await notes.have({key: 2})
    assert notes.values[key] == 2


async def one_of_many_processes_changes_a_counter(connect: Connect) -> None:
    """Each counter is changed by exactly one process, also if they pass different orders."""
    own = _new_key()
    keys = [f"{own} {number}" for number in range(20)]
    async with _opened(connect, 4) as opened:
        expected: int | None = None
        for value in range(10):
            answers = await asyncio.gather(
                *(
                    store.compare_and_raise(
                        dict.fromkeys(keys[:: 1 - place % 2 * 2], (expected, value))
                    )
                    for place, (store, _) in enumerate(opened)
                )
            )
            changed = [key for _, keys_changed in answers for key in keys_changed]
            assert sorted(changed) == sorted(keys)
            expected = value


async def a_large_change_is_one_call(connect: Connect) -> None:
    """The changes are too many for one message of any server."""
    own = _new_key()
    wanted = {f"{own} {number}": number for number in range(5_000)}
    async with _opened(connect, 2) as [(one, _), (_, notes)]:
        changes = {key: (None, value) for key, value in wanted.items()}
        _, changed = await one.compare_and_raise(changes)
        assert changed == set(wanted)
        await notes.have(wanted)
        removals = {key: (value, None) for key, value in wanted.items()}
        _, changed = await one.compare_and_raise(removals)
        assert changed == set(wanted)
        assert await _listed(one, own) == {}


async def every_process_reads_one_clock(connect: Connect) -> None:
    """Times that several processes read never go back."""
    async with _opened(connect, 2) as [(one, _), (two, _)]:
        times = [await store.now_ms() for store in (one, two, one, two)]
    assert times == sorted(times)
    assert all(type(each) is int for each in times)


async def nothing_arrives_after_closing(connect: Connect) -> None:
    """Closing is idempotent and leaves no task, and no hint arrives after it."""
    key = _new_key()
    before = asyncio.all_tasks()
    store, notes = connect(), _Notes()
    async with _opened(connect) as [(other, open_notes)]:
        await store.open(notes)
        await store.aclose()
        await store.aclose()
        await other.raise_to({key: 1})
        await open_notes.have({key: 1})
    assert key not in notes.values
    assert asyncio.all_tasks() == before


async def a_closed_store_opens_again(connect: Connect) -> None:
    """The same store object can be opened again after it was closed, also in another loop."""
    key = _new_key()
    store = connect()
    await _use_for_a_while(store, key, 0)
    await _use_for_a_while(store, key, 1)
    await asyncio.to_thread(asyncio.run, _use_for_a_while(store, key, 2))


async def _use_for_a_while(store: CounterStore, key: str, value: int) -> None:
    notes = _Notes()
    await store.open(notes)
    try:
        for part in range(2):  # twice, so that the task of the store waits between the writes
            # Many at once, because a lock notes its loop only when somebody waits for it.
            await asyncio.gather(*(store.raise_to({f"{key} {each}": value}) for each in range(20)))
            await asyncio.gather(*(store.read([key]) for _ in range(20)))
            await store.add_one([key])
            await notes.have({f"{key} 0": value, key: 2 * value + part + 1})
    finally:
        await store.aclose()
