"""Fires for tests of handlers; and the contract of a store, for projects that write one. Rank 4.

The tests of the contract need pytest and its plugin pytest-asyncio in auto mode, or any runner of
coroutines.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from aiowheel._arguments import checked_int, checked_str, safe_repr
from aiowheel.durable._fire import Fire
from aiowheel.durable._instants import to_us
from aiowheel.durable._store import Store
from aiowheel.durable.operations import (
    LONGEST_NAME,
    Cancel,
    Change,
    Cursor,
    IfExists,
    Leased,
    Move,
    Operation,
    Placed,
    Put,
    Redrive,
    Removed,
    Result,
    Row,
    Settle,
    part_of,
    second_name,
)
from aiowheel.errors import TimerExistsError

__all__ = ("StoreContract", "make_fire")

_SECOND = 1_000_000
_HOUR = 3600 * _SECOND
_FIRST = -(2**62)
_YEAR_1, _YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
_NEW_YEAR: Final = datetime(2030, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS = 10_000


def make_fire(
    name: str = "timer",
    handler: str = "handler",
    *,
    payload: bytes = b"",
    due: datetime = _NEW_YEAR,
    attempt: int = 1,
    id: str = "1.0",  # noqa: A002 - the name of the attribute
) -> Fire:
    """Return a fire without a store, for a test that calls a handler itself.

    Its `ack_in` sets `acknowledged`, and does not use the connection.

    Args:
        name: The name of the timer.
        handler: The name of the handler.
        payload: The bytes given to `schedule`.
        due: When the fire was due, an aware datetime.
        attempt: The number of the attempt, from 1 to 10,000.
        id: The identity of the fire.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: *due* has no time zone, or *attempt* is out of range.
    """
    if not isinstance(payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"payload must be bytes, got {safe_repr(payload)}")
    for argument, value in (("name", name), ("handler", handler), ("id", id)):
        checked_str(argument, value)
    due_us = to_us("due", due)
    failed = checked_int("attempt", attempt, 1, _MOST_ATTEMPTS) - 1
    row = Row(1, name, handler, 0, due_us, 0, failed, None, None, id, payload)
    return Fire(row, due_us, 1, None, _acknowledge)


async def _acknowledge(fire: Fire, connection: object) -> None:  # noqa: ARG001 - Fire passes it
    fire.acknowledged = True


class StoreContract:
    """The tests of a store; a subclass overrides `make_store` and `same_store`.

    A test opens one store, and a second one on the same data if it needs another process.
    """

    async def make_store(self) -> Store:
        """Return a new store without timers and with at least 4 partitions, not yet open."""
        raise NotImplementedError

    async def same_store(self, store: Store) -> Store:
        """Return another store on the data of *store*, for another process, not yet open."""
        raise NotImplementedError

    # --- writing ------------------------------------------------------------------------------

    async def test_a_written_timer_is_read_back(self) -> None:
        """Each field is equal, with all bytes in the payload and unusual letters in the name."""
        async with _Opened(await self.make_store()) as store:
            payload = bytes(range(256))
            put = Put("näme \U0001f552'\"", "handler", 5, payload, '{"every_us": 1}')
            placed = await _one(store, put)

            assert isinstance(placed, Placed)
            assert placed.is_new
            row = placed.row
            assert row == await store.get(put.name)
            assert row[1:] == (
                *(put.name, "handler", part_of(put.name, store.partitions), 5, 1, 0),
                *('{"every_us": 1}', None, None, payload),
            )

    async def test_if_exists_decides_about_a_name_that_is_there(self) -> None:
        """The four values of `if_exists` replace, keep, refuse and revise the timer."""
        async with _Opened(await self.make_store()) as store:
            first = _row(await _one(store, Put("a", "h", 1, b"1")))
            assert await _one(store, Put("a", "h", 2, b"2", if_exists="keep")) is None
            refused = await _one(store, Put("a", "h", 2, b"2", if_exists="error"))
            assert isinstance(refused, TimerExistsError)
            assert await store.get("a") == first
            assert await _one(store, Put("a", "h", 2, b"1", if_exists="revise")) is None

            revised = await _one(store, Put("a", "h", 3, b"3", if_exists="revise"))
            replaced = await _one(store, Put("a", "h", 4, b"4"))

            assert isinstance(revised, Placed)
            assert isinstance(replaced, Placed)
            assert not replaced.is_new
            assert (revised.row.id, revised.row.gen) == (first.id, 2)
            assert replaced.row == await store.get("a")
            assert (replaced.row.id, replaced.row.gen, replaced.row.due_us) == (first.id, 3, 4)

    async def test_an_id_is_never_used_again(self) -> None:
        """With a reused id, a fire of a new timer would look like a repeat of an old one."""
        async with _Opened(await self.make_store()) as store:
            seen: set[int] = set()
            for _ in range(5):
                seen.add(_row(await _one(store, Put("a", "h", 1, b""))).id)
                await _one(store, Cancel("a"))

            assert len(seen) == 5

    async def test_operations_of_one_commit_run_in_order(self) -> None:
        """The order also holds for several operations on one name."""
        async with _Opened(await self.make_store()) as store:
            results = await store.commit(
                "me",
                [
                    Put("a", "h", 1, b"1"),
                    Put("a", "h", 2, b"2"),
                    Move("a", 7),
                    Cancel("a"),
                    Cancel("a"),
                    Put("a", "h", 3, b"3", if_exists="error"),
                    Put("a", "h", 4, b"4", if_exists="keep"),
                    Move("b", 1),
                ],
            )

            kinds = [type(each) for each in results]
            nothing = type(None)
            assert kinds == [Placed, Placed, Placed, Removed, nothing, Placed, nothing, nothing]
            moved, removed = results[2], results[3]
            assert isinstance(moved, Placed)
            assert isinstance(removed, Removed)
            assert (removed.id, removed.gen, removed.due_us) == (moved.row.id, 3, 7)
            assert moved.row.payload == b"2"

    async def test_an_unknown_name_changes_no_timer(self) -> None:
        """Neither a cancel nor a move of a name without a timer has an effect."""
        async with _Opened(await self.make_store()) as store:
            for name in ("a", "b"):
                await _one(store, Put(name, "h", 1, b""))
            before = [await store.get(name) for name in ("a", "b")]

            assert await _one(store, Cancel("unknown")) is None
            assert await _one(store, Move("unknown", 9)) is None
            assert [await store.get(name) for name in ("a", "b")] == before

    async def test_a_thousand_operations_of_one_commit(self) -> None:
        """Each operation has its own result."""
        async with _Opened(await self.make_store()) as store:
            results = await store.commit(
                "me", [Put(f"t{n}", "h", n, str(n).encode()) for n in range(1000)]
            )

            assert [_row(each).payload for each in results] == [
                str(n).encode() for n in range(1000)
            ]
            assert (await store.summary()).pending == 1000
            assert await store.check() == []

    async def test_a_commit_is_seen_as_a_whole(self) -> None:
        """A reader finds all its timers or none of them."""
        async with _Opened(await self.make_store()) as store:
            puts = [Put(f"t{number}", "h", 1, b"") for number in range(50)]
            commit = asyncio.ensure_future(store.commit("me", puts))
            seen: set[int] = set()
            while not commit.done():
                seen.add(len(await store.rows()))
                await asyncio.sleep(0)
            await commit

            assert seen <= {0, len(puts)}

    async def test_new_and_known_names_of_one_commit(self) -> None:
        """Each put treats a known name by its `if_exists`, and new names are written beside."""
        async with _Opened(await self.make_store()) as store:
            names = [f"t{n}" for n in range(40)]
            old = await store.commit("me", [Put(name, "h", 1, b"old") for name in names[::4]])
            modes: tuple[IfExists, ...] = ("replace", "keep", "error", "revise")
            puts = [
                Put(name, "h", 2, b"new", if_exists=mode)
                for name, mode in zip(names, modes * 10, strict=True)
            ]
            puts[4] = puts[4]._replace(if_exists="keep")
            puts[8] = puts[8]._replace(if_exists="error")

            results = await store.commit("me", puts)

            assert results[4] is None
            assert isinstance(results[8], TimerExistsError)
            placed = {each.row.name: each for each in results if isinstance(each, Placed)}
            assert [name for name in names if name not in placed] == ["t4", "t8"]
            assert [name for name in names if name in placed and not placed[name].is_new] == [
                name for name in names[::4] if name not in {"t4", "t8"}
            ]
            assert placed["t0"].row.id == _row(old[0]).id
            for each in placed.values():
                assert each.row == await store.get(each.row.name)
            assert [row.payload for row in await store.rows()].count(b"old") == 2
            assert len({row.id for row in await store.rows()}) == len(names)

    # --- settling -----------------------------------------------------------------------------

    async def test_a_settled_timer_is_gone(self) -> None:
        """The settlement deletes the timer, and a second settlement finds no timer."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            row = _row(await _one(store, Put("a", "h", 1, b"")))
            settle = Settle(row.id, row.name, row.gen, row.part, epochs[row.part])

            assert await _one(store, settle) == "done"
            assert await _one(store, settle) == "gone"
            assert await store.get("a") is None

    async def test_a_settlement_with_another_epoch_is_refused(self) -> None:
        """An owner that has lost the partition changes nothing: the epoch is a fencing token."""
        async with _Opened(await self.make_store()) as store:
            old = (await _renew(store, "old")).epochs
            row = _row(await _one(store, Put("a", "h", 1, b""), owner="old"))
            await store.release("old")
            new = (await _renew(store, "new")).epochs

            assert new[row.part] == old[row.part] + 1
            for due_us, error in ((None, None), (5, None), (None, "boom")):
                settle = Settle(
                    row.id, row.name, 1, row.part, old[row.part], due_us, 2, error=error
                )
                assert await _one(store, settle, owner="old") == "stale"
            assert await store.get("a") == row
            assert await store.dead_letters() == []
            assert await _one(store, Settle(row.id, row.name, 1, row.part, new[row.part])) == "done"

    async def test_a_settlement_of_a_replaced_timer_changes_nothing(self) -> None:
        """The settlement has an old generation."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            old = _row(await _one(store, Put("a", "h", 1, b"")))
            new = _row(await _one(store, Put("a", "h", 9, b"")))

            assert (
                await _one(store, Settle(old.id, old.name, old.gen, old.part, epochs[old.part]))
                == "gone"
            )
            assert await store.get("a") == new

    async def test_two_generations_of_a_timer_are_settled_in_one_commit(self) -> None:
        """Only the generation of the row is "done": the timer was replaced while it fired."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            rows = [_row(await _one(store, Put("a", "h", 1, b""))) for _ in range(2)]

            results = await store.commit(
                "me",
                [Settle(row.id, row.name, row.gen, row.part, epochs[row.part]) for row in rows],
            )

            assert results == ["gone", "done"]
            assert await store.get("a") is None

    async def test_a_settlement_of_an_earlier_timer_of_that_name_changes_nothing(self) -> None:
        """The timer was cancelled, and its name was given to a new one of the same generation."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            old = _row(await _one(store, Put("a", "h", 1, b"")))
            await _one(store, Cancel("a"))
            new = _row(await _one(store, Put("a", "h", 9, b"")))
            identity = (old.id, old.name, old.gen, old.part, epochs[old.part])

            for settle in (
                Settle(*identity),
                Settle(*identity, due_us=50, next_gen=2),
                Settle(*identity, error="boom", attempts=1),
            ):
                assert await _one(store, settle) == "gone"
            assert await store.get("a") == new
            assert await store.dead_letters() == []

    async def test_a_settlement_of_another_timer_with_that_id_changes_nothing(self) -> None:
        """A store that has lost timers in a failover may give their ids to other timers."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            row = _row(await _one(store, Put("a", "h", _HOUR, b"a")))
            identity = (row.id, "lost", row.gen, row.part, epochs[row.part])
            for settle in (
                Settle(*identity),
                Settle(*identity, due_us=50, next_gen=2),
                Settle(*identity, error="boom", attempts=1),
            ):
                assert await _one(store, settle) == "gone"
            assert await store.rows() == [row]
            assert await store.dead_letters() == []
            both = [Settle(*identity), Settle(*identity)._replace(name="a")]
            assert await store.commit("me", both) == ["gone", "done"]

    async def test_a_settlement_can_make_the_timer_due_again(self) -> None:
        """A retry keeps the generation, and the next occurrence has a new one."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            row = _row(await _one(store, Put("a", "h", 1, b"p", "rule")))
            retry = Settle(row.id, row.name, 1, row.part, epochs[row.part], 50, 1, 1, 1)
            assert await _one(store, retry) == "done"
            assert await store.get("a") == row._replace(due_us=50, attempt=1, first_due_us=1)

            following = Settle(row.id, row.name, 1, row.part, epochs[row.part], 60, 2, 0, None)
            assert await _one(store, following) == "done"
            assert await store.get("a") == row._replace(due_us=60, gen=2)

    async def test_a_changed_timer_begins_its_attempts_anew(self) -> None:
        """A fire that was redriven and retried ends, if its timer is moved or replaced."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            for change in (Move("a", 70), Put("a", "h", 70, b"p")):
                row = _row(await _one(store, Put("a", "h", 1, b"p")))
                place = (row.part, epochs[row.part])
                await _one(store, Settle(row.id, "a", row.gen, *place, error="x", attempts=1))
                (letter,) = await store.dead_letters()
                again = _row(await _one(store, Redrive(letter.id)))
                retry = Settle(again.id, "a", again.gen, *place, 50, again.gen, 1, 1, None, 1)
                assert await _one(store, retry) == "done"

                changed = _row(await _one(store, change))

                assert changed == again._replace(due_us=70, gen=again.gen + 1, fire_id=None)
                assert await store.get("a") == changed

    async def test_a_dead_letter_can_be_redriven(self) -> None:
        """The fire keeps its identity, and its timer gets another name if the name is taken."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            for due_us in (None, 99):
                row = _row(await _one(store, Put("a", "h", 1, b"p")))
                await _one(
                    store,
                    Settle(
                        *(row.id, row.name, row.gen, row.part, epochs[row.part], due_us),
                        next_gen=row.gen + 1,
                        error="boom",
                        attempts=3,
                        dead_due_us=due_us,
                    ),
                )
            letters = await store.dead_letters()
            assert [letter.error for letter in letters] == ["boom", "boom"]
            first, second = letters
            assert await store.dead_letters(limit=1) == [first]
            assert (first.name, first.handler, first.due_us, first.attempts) == ("a", "h", 1, 3)
            assert second.due_us == 99
            assert await store.dead_letters(after=first.id) == [second]

            placed = _row(await _one(store, Redrive(first.id)))
            again = await _one(store, Redrive(first.id))

            assert again is None
            assert placed.name == f"a#{first.fire_id}"
            assert placed.identity() == first.fire_id
            assert await store.get(placed.name) == placed
            assert placed.payload == b"p"
            assert await store.dead_letters() == [second]
            assert await store.check() == []

    async def test_a_dead_letter_whose_names_are_taken_stays(self) -> None:
        """It can be redriven after one of the timers has ended; no timer is replaced."""
        async with _Opened(await self.make_store()) as store:
            epochs = (await _renew(store, "me")).epochs
            name = "x" * LONGEST_NAME
            row = _row(await _one(store, Put(name, "h", 1, b"p")))
            settle = Settle(
                row.id, row.name, 1, row.part, epochs[row.part], error="boom", attempts=1
            )
            await _one(store, settle)
            (letter,) = await store.dead_letters()
            second = second_name(letter)
            for taken in (name, second):
                await _one(store, Put(taken, "h", _HOUR, b"taken"))

            refused = await _one(store, Redrive(letter.id))

            assert isinstance(refused, TimerExistsError)
            assert refused.name == second
            assert [row.payload for row in await store.rows()] == [b"taken"] * 2
            assert await store.dead_letters() == [letter]
            await _one(store, Cancel(second))
            assert _row(await _one(store, Redrive(letter.id))).name == second
            assert len(second) == LONGEST_NAME
            assert await store.dead_letters() == []

    # --- leases -------------------------------------------------------------------------------

    async def test_one_owner_has_all_partitions(self) -> None:
        """A second renewal keeps the partitions under the same epochs."""
        async with _Opened(await self.make_store()) as store:
            first = await _renew(store, "me")
            second = await _renew(store, "me")

            assert sorted(first.epochs) == list(range(store.partitions))
            assert second.epochs == first.epochs
            assert first.share == store.partitions
            assert first.next_expiry_us is None

    async def test_partitions_move_when_they_are_given_up(self) -> None:
        """The second owner reduces the share, but does not take partitions with valid leases."""
        async with _Opened(await self.make_store()) as store:
            await _renew(store, "a")
            empty = await _renew(store, "b")
            assert empty.epochs == {}
            assert empty.next_expiry_us is not None
            half = await _renew(store, "a")
            assert half.share == -(-store.partitions // 2)

            given = sorted(half.epochs)[half.share :]
            rest = await _renew(store, "a", give_up=given)
            taken = await _renew(store, "b")

            assert sorted(taken.epochs) == given
            assert sorted(rest.epochs) == sorted(half.epochs)[: half.share]
            assert all(taken.epochs[part] == half.epochs[part] + 1 for part in given)
            await _renew(store, "b", give_up=list(rest.epochs))  # nobody gives up those of others
            assert (await _renew(store, "a")).epochs == rest.epochs

    async def test_a_partition_without_an_owner_is_reported(self) -> None:
        """Another process then need not wait for its next renewal to take it."""
        async with _Opened(await self.make_store()) as store:
            await _renew(store, "me")
            assert not (await store.changes("me"))[1]

            await _renew(store, "me", give_up=[0])

            assert (await store.changes("me"))[1]

    async def test_epochs_grow_over_a_restart(self) -> None:
        """A settlement of the earlier process is refused."""
        store = await self.make_store()
        async with _Opened(store):
            first = await _renew(store, "first")
            await store.release("first")
        async with _Opened(await self.same_store(store)) as again:
            second = await _renew(again, "second")

        assert all(second.epochs[part] > epoch for part, epoch in first.epochs.items())

    async def test_an_ended_lease_is_taken_over(self) -> None:
        """The new owner has a larger epoch, and no share is left for the other one."""
        async with _Opened(await self.make_store()) as store:
            dead = await _renew(store, "dead", lease_us=-1)
            heir = await _renew(store, "heir")

            assert heir.epochs == {part: epoch + 1 for part, epoch in dead.epochs.items()}
            assert heir.share == store.partitions

    async def test_an_owner_learns_of_changes_by_others(self) -> None:
        """Each change of a timer that the owner may hold in memory is returned once."""
        async with _Opened(await self.make_store()) as store:
            now = (await _renew(store, "me")).now_us
            moved = _row(await _one(store, Put("moved", "h", now + _SECOND, b"")))
            gone = _row(await _one(store, Put("gone", "h", now + _SECOND, b"")))
            assert (await store.changes("me"))[0] == []

            await _one(store, Move("moved", now + 2 * _HOUR), owner="other")
            await _one(store, Cancel("gone"), owner="other")
            new = _row(await _one(store, Put("new", "h", now + _SECOND, b""), owner="other"))
            await _one(store, Put("far", "h", now + 2 * _HOUR, b""), owner="other")
            assert (await store.changes("other"))[0] == []
            changes = {change.id: change for change in (await store.changes("me"))[0]}

            assert changes == {
                moved.id: Change(moved.id, changes[moved.id].row),
                gone.id: Change(gone.id, None),
                new.id: Change(new.id, new),
            }
            assert changes[moved.id].row in {None, await store.get("moved")}
            assert (await store.changes("me"))[0] == []

            await _one(store, Cancel("new"), owner="other")
            assert (await _renew(store, "me")).changes == [Change(new.id, None)]
            assert (await _renew(store, "me")).changes == []

    async def test_a_cancel_is_final_unless_the_owner_may_fire_first(self) -> None:
        """The owner reads the change at its next renewal, which is before its lease ends."""
        async with _Opened(await self.make_store()) as store:
            now = (await _renew(store, "me", lease_us=10 * _SECOND)).now_us
            found: list[bool] = []
            for due_us, by in (
                (now + _SECOND, "me"),
                (now + _SECOND, "other"),
                (now + 100 * _SECOND, "other"),
                (now + 2 * _HOUR, "other"),
            ):
                await _one(store, Put("a", "h", due_us, b""))
                removed = await _one(store, Cancel("a"), owner=by)
                assert isinstance(removed, Removed)
                found.append(removed.is_final)
            # The owner has not read a change: it may hold a version that is due sooner.
            await _one(store, Put("a", "h", now + _SECOND, b""))
            await _one(store, Put("a", "h", now + 100 * _SECOND, b""), owner="other")
            removed = await _one(store, Cancel("a"), owner="other")
            assert isinstance(removed, Removed)
            assert not removed.is_final
            await store.release("me")
            await _one(store, Put("a", "h", now, b""))
            removed = await _one(store, Cancel("a"), owner="other")
            assert isinstance(removed, Removed)

            assert [*found, removed.is_final] == [True, False, True, True, True]

    async def test_the_clock_is_that_of_the_renewals(self) -> None:
        """A process that fires nothing learns the clock without a renewal."""
        async with _Opened(await self.make_store()) as store:
            before = await store.now_us()
            leased = await _renew(store, "me")

            assert before <= leased.now_us <= await store.now_us()

    # --- reading ------------------------------------------------------------------------------

    async def test_pages_follow_each_other(self) -> None:
        """The pages have each row once, in the order of (due, id)."""
        async with _Opened(await self.make_store()) as store:
            await store.commit("me", [Put(f"t{n}", "h", n % 7, b"") for n in range(200)])
            read: list[Row] = []
            cursors = [Cursor(part, _FIRST, 0) for part in range(store.partitions)]
            while cursors:
                pages = await store.page(cursors, 5, 10)
                assert all(len(page) <= 10 for page in pages)
                read += [row for page in pages for row in page]
                cursors = [
                    Cursor(cursor.part, page[-1].due_us, page[-1].id)
                    for cursor, page in zip(cursors, pages, strict=True)
                    if page
                ]

            for part in range(store.partitions):
                order = [(row.due_us, row.id) for row in read if row.part == part]
                assert order == sorted(order)
            wanted = [f"t{n}" for n in range(200) if n % 7 <= 5]
            assert sorted(row.name for row in read) == sorted(wanted)

    async def test_a_page_begins_after_its_cursor(self) -> None:
        """The order is exact for equal and adjacent due times, and from the year 1 to 9999."""
        instants = [_YEAR_1, -65_537, -65_536, -1, 0, 1, 65_535, 65_536, 2**50, _YEAR_9999]
        async with _Opened(await self.make_store()) as store:
            await store.commit("me", [Put(f"t{n}", "h", instants[n % 10], b"") for n in range(60)])
            rows = sorted(await store.rows(), key=lambda row: (row.due_us, row.id))
            parts = sorted({row.part for row in rows})
            places = [(_FIRST, 0), *((due_us, 2**62) for due_us in instants)]
            places += [(row.due_us, row.id) for row in rows[::3]]
            for until_us in instants:
                for place in places:
                    pages = await store.page([Cursor(part, *place) for part in parts], until_us, 60)

                    assert pages == [
                        [
                            row
                            for row in rows
                            if row.part == part
                            and place < (row.due_us, row.id)
                            and row.due_us <= until_us
                        ]
                        for part in parts
                    ]

    async def test_rows_are_listed_by_name(self) -> None:
        """A prefix is plain text, also if its letters are wildcards of the database."""
        async with _Opened(await self.make_store()) as store:
            names = ["a%1", "a%2", "a_1", "b"]
            await store.commit("me", [Put(name, "h", 1, b"") for name in names])

            assert [row.name for row in await store.rows()] == names
            assert [row.name for row in await store.rows(prefix="a%")] == ["a%1", "a%2"]
            assert [row.name for row in await store.rows(after="a%1", limit=2)] == ["a%2", "a_1"]

    async def test_a_prefix_ends_at_any_letter(self) -> None:
        """The letters around the surrogates and the last one have no plain successor."""
        letters = ["a", "\x7f", "\x80", "\xff", "\u0100", "\ud7ff", "\ue000", "\uffff"]
        letters += ["\U00010000", "\U0010fffe", "\U0010ffff"]
        async with _Opened(await self.make_store()) as store:
            names = [*letters, *(f"{one}{two}" for one in letters for two in letters)]
            await store.commit("me", [Put(name, "h", 1, b"") for name in names])

            for prefix in names:
                found = [row.name for row in await store.rows(prefix=prefix)]
                assert found == sorted(name for name in names if name.startswith(prefix))
                rest = await store.rows(prefix=prefix, after=found[0], limit=2)
                assert [row.name for row in rest] == found[1:3]

    async def test_the_summary_counts(self) -> None:
        """The summary counts pending and overdue timers, timers by hour, partitions by owner."""
        async with _Opened(await self.make_store()) as store:
            now = (await _renew(store, "me")).now_us
            half = _HOUR // 2
            for name, due_us in (("a", 1), ("b", now + half), ("c", now + _HOUR + half)):
                await _one(store, Put(name, "h", due_us, b""))
            summary = await store.summary()

            assert (summary.pending, summary.overdue, summary.dead) == (3, 1, 0)
            assert summary.hours[:3] == [2, 1, 0]
            assert summary.owners == {"me": store.partitions}

    async def test_sound_timers_have_no_flaws(self) -> None:
        """An empty payload, which is the default, is sound too."""
        async with _Opened(await self.make_store()) as store:
            await store.commit("me", [Put("empty", "h", 1, b""), Put("full", "h", 1, b"\0")])

            assert await store.check() == []

    async def test_another_process_reads_the_same(self) -> None:
        """A second store on the same data has the timer, also after both were closed."""
        store = await self.make_store()
        async with _Opened(store):
            row = _row(await _one(store, Put("a", "h", 1, b"p")))
            async with _Opened(await self.same_store(store)) as other:
                assert await other.get("a") == row
        async with _Opened(await self.same_store(store)) as again:
            assert await again.get("a") == row

    async def test_a_closed_store_opens_again(self) -> None:
        """The same object can be opened again after it was closed, also in another loop."""
        store = await self.make_store()

        async def use(name: str) -> None:
            async with _Opened(store):
                # Many at once, because a lock notes its loop only when somebody waits for it.
                await asyncio.gather(*(_one(store, Put(name, "h", 1, b"")) for _ in range(20)))
                assert await store.get(name) is not None

        await use("a")
        await use("b")
        await asyncio.to_thread(asyncio.run, use("c"))


class _Opened:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def __aenter__(self) -> Store:
        await self._store.open()
        return self._store

    async def __aexit__(self, *exc_info: object) -> None:
        await self._store.aclose()


async def _one(store: Store, operation: Operation, owner: str = "me") -> Result:
    (result,) = await store.commit(owner, [operation])
    return result


def _row(result: Result) -> Row:
    assert isinstance(result, Placed), result
    return result.row


async def _renew(
    store: Store, owner: str, *, lease_us: int = 30 * _SECOND, give_up: list[int] | None = None
) -> Leased:
    return await store.renew(owner, lease_us=lease_us, horizon_us=_HOUR, give_up=give_up or ())
