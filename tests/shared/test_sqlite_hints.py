"""The messages between the processes on one SQLite file: values, or a request to read the file."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from aiowheel._bells import CERTAINLY_ALL
from aiowheel.errors import StoreUnavailableError
from aiowheel.serve import Limits
from aiowheel.serve._sqlite_topics import SqliteTopics
from aiowheel.shared import SqliteCounters, _sqlite

from .conftest import Until

pytestmark = [pytest.mark.one_build, pytest.mark.posix, pytest.mark.realtime]


class Recorder:
    """A listener that records values and gaps."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.gaps = 0

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """See `HintListener`."""
        self.values.update(values)

    def gap(self) -> None:
        """See `HintListener`."""
        self.gaps += 1


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The start of each read of the file; only messages cause reads."""
    found: list[tuple[str, int]] = []
    look = _sqlite._changes

    def counted(
        file: sqlite3.Connection, seen: tuple[str, int]
    ) -> tuple[tuple[str, int], list[tuple[str, int]] | None]:
        found.append(seen)
        return look(file, seen)

    monkeypatch.setattr(_sqlite, "_changes", counted)
    monkeypatch.setattr(_sqlite, "_POLL", 3600)
    return found


@pytest.fixture
async def recorder(short_path: Path, looks: list[tuple[str, int]]) -> AsyncGenerator[Recorder]:
    """The listener of one process, which makes its first read after *looks* records it."""
    assert looks == []
    listener = Recorder()
    store = SqliteCounters(short_path / "counters.db")
    await store.open(listener)
    yield listener
    await store.aclose()


@pytest.fixture
async def other(short_path: Path) -> AsyncGenerator[SqliteCounters]:
    """The store of another process, which writes and does not listen."""
    store = SqliteCounters(short_path / "counters.db")
    yield store
    await store.aclose()


async def test_a_write_that_follows_needs_no_look(
    recorder: Recorder, other: SqliteCounters, looks: list[tuple[str, int]], until: Until
) -> None:
    """The message has the values."""
    for count in range(1, 4):
        await other.raise_to({"k": count, f"k{count}": 1})
        await until(lambda: len(recorder.values) > count)  # noqa: B023 - called only in this iteration

    assert recorder.values == {"k": 3, "k1": 1, "k2": 1, "k3": 1}
    assert looks == []
    assert recorder.gaps == 0


@pytest.mark.parametrize(
    ("order", "is_read"),
    [
        pytest.param([1, 2, 3], False, id="in order"),
        pytest.param([2, 3, 1], False, id="in another order"),
        pytest.param([1, 1, 2], False, id="repeated"),
        pytest.param([1, 3], True, id="one lost"),
        pytest.param(list(range(1, 11)), True, id="a full queue"),
    ],
)
@pytest.mark.skipif(CERTAINLY_ALL < 2, reason="this system limits the bytes of unread messages")
async def test_messages_that_wait_together_need_no_look_if_none_is_lost(
    recorder: Recorder,
    other: SqliteCounters,
    looks: list[tuple[str, int]],
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    order: list[int],
    *,
    is_read: bool,
) -> None:
    """Processes may send their messages in another order than that of their commits."""
    sent: list[bytes] = []
    await other.raise_to({"k": 0})
    await until(lambda: "k" in recorder.values)
    with monkeypatch.context() as silent:
        silent.setattr(other._bells, "ring", sent.append)
        for count in range(1, max(order) + 1):
            await other.raise_to({"k": count, f"k{count}": 1})
    for place in order:  # the loop reads all of them in one turn
        other._bells.ring(sent[place - 1])
    last = max(order)
    await until(lambda: recorder.values.get("k") == last)

    assert recorder.values == {"k": last} | {f"k{count}": 1 for count in range(1, last + 1)}
    assert (bool(looks), recorder.gaps) == (is_read, 0)


@pytest.mark.parametrize(
    "message",
    [
        "5",
        "{}",
        "[" * 5_000,
        '["EPOCH", "2", {"k": 7}]',
        '["EPOCH", 2.0, {"k": 7}]',
        '["EPOCH", true, {"k": 7}]',
        '["EPOCH", 2, []]',
        '["EPOCH", 2, {"k": 1e999}]',
        '["EPOCH", 2, {"k": "7"}]',
    ],
)
async def test_a_malformed_message_needs_a_look(
    recorder: Recorder,
    other: SqliteCounters,
    looks: list[tuple[str, int]],
    until: Until,
    message: str,
) -> None:
    """Every process that may write to the socket can send it."""
    epoch = await other.raise_to({"k": 1})
    await until(lambda: recorder.values == {"k": 1})

    other._bells.ring(message.replace("EPOCH", epoch).encode())
    await until(lambda: looks)
    await other.raise_to({"k": 2})
    await until(lambda: recorder.values["k"] == 2)

    assert recorder.gaps == 0


async def test_a_write_after_a_silent_one_needs_a_look(
    recorder: Recorder,
    other: SqliteCounters,
    looks: list[tuple[str, int]],
    until: Until,
    short_path: Path,
) -> None:
    """A transaction of the caller sends no message; the next message reveals the missing one."""
    await other.raise_to({"k": 1})
    await until(lambda: recorder.values.get("k") == 1)
    with closing(sqlite3.connect(short_path / "counters.db")) as connection, connection:
        other.advance_in(connection, "silent", 7)
    assert "silent" not in recorder.values

    await other.raise_to({"k": 2})
    await until(lambda: recorder.values.get("k") == 2)

    assert recorder.values == {"k": 2, "silent": 7}
    assert looks != []


async def test_a_backup_that_replaces_the_file_is_a_gap(
    short_path: Path, other: SqliteCounters, until: Until
) -> None:
    """Its revisions pass that of the old file before the next look, and it keeps the epoch."""
    path, backup = short_path / "counters.db", short_path / "backup.db"
    listener = Recorder()
    async with aclosing(SqliteCounters(path)) as store:
        await store.open(listener)
        await other.raise_to({"k": 1})
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        await other.raise_to({"later": 1})
        await until(lambda: "later" in listener.values)
        for ending in ("-wal", "-shm"):
            path.with_name(f"counters.db{ending}").unlink()
        backup.rename(path)
        await other.raise_to({"k": 2})
        await other.raise_to({"last": 1})

        await until(lambda: listener.gaps)


@pytest.mark.usefixtures("recorder")
async def test_an_unexpected_error_is_logged(
    other: SqliteCounters,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event has the name and the text of the error."""
    monkeypatch.setattr(_sqlite, "_changes", Mock(side_effect=OSError(5, "no disk")))
    await other.add_one({"k": 1})
    await until(lambda: "shared_listen_failed" in caplog.text)

    assert "OSError('[Errno 5] no disk')" in caplog.text


async def test_a_file_that_cannot_be_read_is_logged_once(
    short_path: Path,
    other: SqliteCounters,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A process that only waits makes no call that could fail."""
    caplog.set_level(logging.INFO, "aiowheel")
    monkeypatch.setattr(_sqlite, "_POLL", 0.001)
    locked = Mock(side_effect=StoreUnavailableError("locked"))
    async with aclosing(SqliteCounters(short_path / "counters.db")) as store:
        await store.open(Recorder())
        with monkeypatch.context() as patched:
            patched.setattr(_sqlite, "_changes", locked)
            await other.add_one({"k": 1})
            await until(lambda: locked.call_count >= 3)
        await until(lambda: "shared_store_found" in caplog.text)

    lost, found = caplog.messages
    assert lost.startswith("aiowheel.shared_store_lost store='sqlite' error=")
    assert "StoreUnavailableError('locked')" in lost
    assert found.startswith("aiowheel.shared_store_found store='sqlite' seconds=")


@pytest.mark.parametrize("count", [10, 5_000])
async def test_many_values_arrive(
    recorder: Recorder,
    other: SqliteCounters,
    looks: list[tuple[str, int]],
    until: Until,
    count: int,
) -> None:
    """The values are in the message, or are read from the file if they are too long."""
    values = {f"key {number}": number + 1 for number in range(count)}
    await other.raise_to(values)
    await until(lambda: len(recorder.values) == count)

    assert recorder.values == values
    assert bool(looks) is (count == 5_000)


async def test_a_check_arrives(
    recorder: Recorder, other: SqliteCounters, looks: list[tuple[str, int]], until: Until
) -> None:
    """The process reads the file, because the message has no value."""
    await other.add_one(["check"])
    await until(lambda: recorder.values == {"check": 1})
    assert looks != []
    await other.raise_to({"k": 1})
    await until(lambda: recorder.values == {"check": 1, "k": 1})


@pytest.mark.parametrize("store", ["counters", "synced counters", "topics"])
async def test_the_writes_that_wait_for_the_disk(store: str, short_path: Path) -> None:
    """A receipt for a message promises that a loss of power does not take the message."""
    path = short_path / "counters.db"
    if store == "topics":
        counters = SqliteTopics(str(path), Limits()).counters
    else:
        counters = SqliteCounters(path, synced=store == "synced counters")
    found = await counters._writer.run(
        lambda file, query: file.execute(query).fetchone(), "PRAGMA synchronous"
    )
    await counters.aclose()

    assert found == ((1,) if store == "counters" else (2,))  # NORMAL and FULL
