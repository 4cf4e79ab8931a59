"""Topics in a store that two applications of one process share."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette")

from aiowheel.cli import run
from aiowheel.errors import AiowheelError, BadInputError, StoreUnavailableError
from aiowheel.purgatory import Purgatory
from aiowheel.serve import Limits, TopicApp
from aiowheel.serve import _postgres_topics as postgres_topics
from aiowheel.serve import _redis_topics as redis_topics
from aiowheel.serve import _sqlite_topics as sqlite_topics
from aiowheel.serve._shared_store import SharedStore
from aiowheel.serve._store_address import topic_store
from aiowheel.serve._topics import OVERHEAD
from aiowheel.timer import Timer

from .conftest import Serving, Subscriber, started

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

Pair = Callable[..., AbstractAsyncContextManager[tuple[httpx.AsyncClient, httpx.AsyncClient]]]


@pytest.fixture
def pair(store: str) -> Pair:
    """Open clients of two applications on one store, with the same limits."""

    @contextlib.asynccontextmanager
    async def opened(
        **limits: float,
    ) -> AsyncGenerator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
        bounds = Limits(**limits)  # type: ignore[arg-type]
        apps = [TopicApp(bounds, store=store) for _ in range(2)]
        async with (
            started(apps[0]),
            started(apps[1]),
            client_of(apps[0]) as here,
            client_of(apps[1]) as there,
        ):
            yield here, there

    return opened


def client_of(app: TopicApp) -> httpx.AsyncClient:
    """Return a client of an application; `app_of` returns the application."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def app_of(client: httpx.AsyncClient) -> TopicApp:
    """Return the application of a client."""
    app = client._transport.app  # type: ignore[attr-defined]
    assert isinstance(app, TopicApp)
    return app


async def published(client: httpx.AsyncClient, topic: str, *texts: str) -> dict[str, Any]:
    """Publish texts in order; return the last receipt."""
    receipt: dict[str, Any] = {}
    for text in texts:
        answer = await client.post(f"/topics/{topic}", content=text)
        assert answer.status_code == 201, answer.text
        receipt = answer.json()
    return receipt


async def polled(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """Return the answer of a poll."""
    answer = await client.get(f"/topics/{path}")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def data(page: dict[str, Any]) -> list[object]:
    """Return the data of the messages of an answer."""
    return [message["data"] for message in page["messages"]]


async def waits_for(client: httpx.AsyncClient, topic: str) -> None:
    """Wait until a client of this application waits for the topic."""
    store = app_of(client)._service.store
    assert isinstance(store, SharedStore)
    while not store._waiting[topic]:  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.01)


async def topics_of(client: httpx.AsyncClient) -> int:
    """Return the number of existing topics."""
    count: int = (await client.get("/health")).json()["topics"]
    return count


async def rows_of(store: str) -> int:
    """Return the number of rows of topics in the tables of the store."""
    tables = ["topics", "messages", "removed_topics"]
    if store.startswith("sqlite"):
        with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file:
            counts = [
                file.execute(f"SELECT count(*) FROM aiowheel_{each}").fetchone()[0]
                for each in [*tables, "counters"]
            ]
    elif store.startswith("unix"):
        redis: Any = pytest.importorskip("redis.asyncio")
        client = redis.Redis.from_url(store)
        keys = {key.decode() for key in await client.keys("{aiowheel_topic}:*")}
        counters = (
            await client.hlen("{aiowheel_topic}:counters") - 2
        )  # without the epoch and the last hint
        counts = [counters, len(keys - {"{aiowheel_topic}:meta", "{aiowheel_topic}:counters"})]
        await client.aclose()
    else:
        asyncpg: Any = pytest.importorskip("asyncpg")
        connection = await asyncpg.connect(store)
        counts = [
            await connection.fetchval(f"SELECT count(*) FROM aiowheel_{each}")
            for each in [*tables, "topic_counters"]
        ]
        await connection.close()
    return sum(counts)


async def delete_messages(store: str) -> None:
    """Delete all messages, as another program would."""
    if store.startswith("sqlite"):
        with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file, file:
            file.execute("DELETE FROM aiowheel_messages")
        return
    asyncpg: Any = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(store)
    await connection.execute("DELETE FROM aiowheel_messages")
    await connection.close()


async def test_a_publish_answers_polls_of_every_process(pair: Pair) -> None:
    """The processes number the messages of a topic together."""
    async with pair() as (here, there):
        waiting = asyncio.create_task(polled(there, "a?timeout=60"))
        await waits_for(there, "a")
        first = await published(here, "a", "1")
        page = await waiting
        second = await published(there, "a", "2")
        both = await polled(here, f"a?since=0&epoch={first['epoch']}")

    assert data(page) == ["1"]
    assert (page["epoch"], page["reset"]) == (first["epoch"], False)
    assert (second["version"], second["epoch"]) == (2, first["epoch"])
    assert (data(both), both["version"]) == (["1", "2"], 2)


async def test_a_receipt_counts_the_waiting_clients(pair: Pair) -> None:
    """The hint may complete the waits before the publish has its answer."""
    woken: list[int] = []
    async with pair() as (here, _):
        for version in range(20):
            waiting = asyncio.create_task(polled(here, f"a?since={version}&timeout=60"))
            await waits_for(here, "a")
            woken.append((await published(here, "a", "x"))["woken"])
            await waiting

    assert woken == [1] * 20


async def test_subscribers_of_every_process_get_every_message(pair: Pair) -> None:
    """They get all messages in order over websockets while both processes publish."""
    async with (
        pair() as (here, there),
        Subscriber(app_of(here), "/topics/a") as left,
        Subscriber(app_of(there), "/topics/a") as right,
    ):
        publishes = (published(each, "a", "x") for each in (here, there) * 30)
        receipts = await asyncio.gather(*publishes)
        for subscriber in (left, right):
            await subscriber.accepted()
            versions: list[int] = []
            while len(versions) < 60:
                page = await subscriber.message()
                versions += [message["version"] for message in page["messages"]]
            assert versions == list(range(1, 61))

    assert sorted(receipt["version"] for receipt in receipts) == list(range(1, 61))


async def test_topics_survive_a_restart(pair: Pair) -> None:
    """Epoch and version stay, so that clients continue without a reset."""
    async with pair() as (here, _):
        old = await published(here, "a", "1", "2")
    async with pair() as (here, there):
        page = await polled(there, f"a?since=1&epoch={old['epoch']}")
        waiting = asyncio.create_task(polled(there, f"a?since=2&epoch={old['epoch']}&timeout=60"))
        await waits_for(there, "a")
        new = await published(here, "a", "3")
        later = await waiting

    assert (data(page), page["reset"], page["missed"]) == (["2"], False, 0)
    assert (new["epoch"], new["version"]) == (old["epoch"], 3)
    assert (data(later), later["reset"]) == (["3"], False)


async def test_a_removed_topic_is_gone_in_every_process(pair: Pair) -> None:
    """Waiting clients are answered; a new topic of that name has another epoch and starts at 1."""
    async with pair() as (here, there):
        old = await published(here, "a", "1")
        waiting = asyncio.create_task(polled(there, "a?since=1&timeout=60"))
        await waits_for(there, "a")
        removed = await here.delete("/topics/a")
        page = await waiting
        again = await there.delete("/topics/a")
        waiting = asyncio.create_task(polled(there, "a?timeout=60"))
        await waits_for(there, "a")
        new = await published(here, "a", "2")
        first = await waiting
        reset = await polled(here, f"a?since=1&epoch={old['epoch']}")

    assert (removed.status_code, again.status_code) == (204, 404)
    assert (page["version"], page["epoch"], page["reset"]) == (0, "", True)
    assert (new["version"], data(first)) == (1, ["2"])
    assert new["epoch"] != old["epoch"]
    assert (data(reset), reset["reset"]) == (["2"], True)


async def test_messages_of_a_topic_are_bounded(pair: Pair) -> None:
    """Number and bytes are limited; the last message stays; missed ones are counted."""
    async with pair(kept_messages=3, kept_bytes=3 * (OVERHEAD + 100)) as (here, there):
        await published(here, "a", *map(str, range(1, 11)))
        by_count = await polled(there, "a?since=4")
        await published(here, "b", *["x" * 150] * 5)
        await published(here, "c", "y" * 2_000)
        by_bytes, large = await polled(there, "b"), await polled(there, "c")
        metrics = (await there.get("/metrics")).text.splitlines()

    assert (data(by_count), by_count["missed"]) == (["8", "9", "10"], 3)
    assert (len(data(by_bytes)), by_bytes["missed"]) == (2, 3)
    assert data(large) == ["y" * 2_000]
    assert "aiowheel_serve_dropped_total 10.0" in metrics
    assert "aiowheel_serve_published_total 16.0" in metrics
    assert "aiowheel_serve_topics 3.0" in metrics


async def test_bytes_of_all_topics_are_bounded(pair: Pair) -> None:
    """The topic with the oldest last publish loses messages, and keeps its version."""
    room = 3 * (OVERHEAD + 100)
    async with pair(kept_bytes_in_all=room) as (here, there):
        for name in ("a", "b", "c", "a", "d", "e"):
            await published(here, name, "x" * 50)
        pages = {name: await polled(there, f"{name}?timeout=0") for name in "abcde"}
        totals = await app_of(there)._service.store.totals()

    assert [len(data(pages[name])) for name in "abcde"] == [1, 0, 0, 1, 1]
    assert (pages["b"]["version"], pages["b"]["missed"]) == (1, 1)
    assert (totals.size <= room, totals.topics, totals.dropped) == (True, 5, 3)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_messages_that_another_program_deleted_are_no_endless_loop(
    pair: Pair, store: str
) -> None:
    """A publish above a limit finds no message to drop, and counts the missing ones as dropped."""
    room = 3 * (OVERHEAD + 100)
    async with pair(kept_bytes_in_all=room, kept_messages=2) as (here, there):
        for name in ("a", "b", "c", "c"):
            await published(here, name, "x" * 50)
        await delete_messages(store)
        for name in ("d", "c", "c", "e", "f"):
            await published(there, name, "x" * 50)
        totals = await app_of(there)._service.store.totals()

    assert totals.size <= room


async def test_topics_are_bounded(pair: Pair) -> None:
    """The limit counts topics of all processes; other messages of the same write are accepted."""
    async with pair(topics=2) as (here, there):
        await published(here, "a", "1")
        await published(there, "b", "1")
        texts = ("c", "a", "d", "b")
        answers = await asyncio.gather(
            *(here.post(f"/topics/{name}", content="2") for name in texts)
        )
        await here.delete("/topics/a")
        await published(there, "c", "1")

    assert [answer.status_code for answer in answers] == [429, 201, 429, 201]
    assert answers[0].json()["error"] == "too_many_topics"


# A topic expires if its readers stall for this time, which is longer than a slow machine stalls.
KEPT_SECONDS = 1.5
ages = pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("postgres", "redis")),
    ],
    indirect=True,
)


@ages
async def test_messages_grow_old(pair: Pair) -> None:
    """A topic that is read keeps its version and epoch, and loses its messages."""
    async with pair(kept_seconds=KEPT_SECONDS) as (here, there):
        receipt = await published(here, "a", "1")
        while data(page := await polled(there, "a?timeout=0")):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
        while (await app_of(here)._service.store.totals()).size:
            await polled(there, "a?timeout=0")
            await asyncio.sleep(0.02)
        totals = await app_of(here)._service.store.totals()
        later = await published(here, "a", "2")

    assert (page["epoch"], page["version"], page["missed"]) == (receipt["epoch"], 1, 1)
    assert (later["version"], later["epoch"]) == (2, receipt["epoch"])
    assert (totals.dropped, totals.topics) == (1, 1)


@ages
async def test_old_messages_are_not_served_before_they_are_removed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal, which comes in rounds, is switched off."""

    async def keep(_store: SharedStore) -> None:
        pass

    monkeypatch.setattr(SharedStore, "_maintain", keep)
    async with pair(kept_seconds=0.1) as (here, there):
        await published(here, "a", "1")
        await asyncio.sleep(0.2)  # on the clock of the store, which no test can set
        page = await polled(there, "a?timeout=0")
        totals = await app_of(there)._service.store.totals()

    assert (data(page), page["version"], page["missed"]) == ([], 1, 1)
    assert totals.size > 0


@ages
async def test_topics_without_use_expire(
    pair: Pair, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic for which a client of any process waits stays; of the others no row remains."""
    monkeypatch.setattr(sqlite_topics, "FORGET_AFTER", 0.1)
    monkeypatch.setattr(postgres_topics, "FORGET_AFTER", 0.1)
    monkeypatch.setattr(redis_topics, "FORGET_AFTER", 0.1)
    async with pair(kept_seconds=KEPT_SECONDS) as (here, there):
        receipt = await published(here, "waited", "1")
        waiting = asyncio.create_task(polled(there, "waited?since=1&timeout=60"))
        await waits_for(there, "waited")
        await asyncio.gather(*(published(here, f"t{number}", "1") for number in range(50)))
        while await topics_of(here) > 1:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
        again = await published(here, "waited", "2")
        page = await waiting
        while await topics_of(here):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
        totals = await app_of(there)._service.store.totals()
        while await rows_of(store):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)

    assert (again["version"], again["epoch"]) == (2, receipt["epoch"])
    assert data(page) == ["2"]
    assert (totals.topics, totals.size, totals.published, totals.expired) == (0, 0, 52, 51)
    assert totals.dropped == 52


async def test_messages_of_an_expired_topic_are_counted_as_dropped(pair: Pair) -> None:
    """A sweep may remove a topic before it has dropped all old messages; a removal drops none."""
    async with pair() as (here, _there):
        await published(here, "a", "1", "2", "3")
        await published(here, "b", "1")
        store = app_of(here)._service.store
        assert isinstance(store, SharedStore)
        await store.remove("b")
        await store._tables.sweep(-60)  # topics without use since a minute from now
        totals = await store.totals()

    assert (totals.topics, totals.size, totals.published, totals.expired) == (0, 0, 4, 1)
    assert totals.dropped == 3


@pytest.mark.parametrize(("kept", "unused"), [(0.001, 3600.0), (3600.0, 0.0)])
@pytest.mark.parametrize("store", ["redis"], indirect=True)
async def test_a_topic_that_redis_has_evicted_is_removed(
    pair: Pair, store: str, kept: float, unused: float
) -> None:
    """Redis evicts the hash of a topic but not its stream; expiry and limits work as before."""
    redis: Any = pytest.importorskip("redis.asyncio")
    size = OVERHEAD + len(b'"1"')
    limits = {"topics": 2, "kept_bytes": 2 * size, "kept_bytes_in_all": 3 * size}
    async with pair(**limits) as (here, there), redis.Redis.from_url(store) as client:
        shared = app_of(here)._service.store
        assert isinstance(shared, SharedStore)
        tables = shared._tables
        assert isinstance(tables, redis_topics.RedisTopics)
        await published(here, "a", "1", "2")
        await published(here, "b", "1")
        await client.delete("{aiowheel_topic}:t:a")
        await published(there, "b", "2")  # above the limit of all bytes
        full = await tables.totals()
        await published(here, "c", "1")
        await client.delete("{aiowheel_topic}:t:c")
        again = await published(there, "c", "2")  # at the limit of topics
        texts = data(await polled(here, "c?timeout=0"))
        published_again = await tables.totals()
        await client.delete("{aiowheel_topic}:t:b", "{aiowheel_topic}:t:c")
        tables._limits = Limits(kept_seconds=kept)
        while (await tables.totals()).topics:
            await tables.sweep(unused)
        swept = await tables.totals()
        left = await client.exists(*(f"{{aiowheel_topic}}:m:{each}" for each in "abc"))

    assert (full.topics, full.size) == (1, 2 * size)
    assert (again["version"], texts) == (1, ["2"])
    assert (published_again.topics, published_again.size) == (2, 3 * size)
    assert (swept.size, swept.dropped, swept.expired, left) == (0, 6, 0, 0)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_store_that_is_replaced_begins_anew(pair: Pair, tmp_path: Path) -> None:
    """Waiting clients get a `reset`; later messages are kept."""
    async with pair() as (here, there):
        old = await published(here, "a", "1")
        waiting = asyncio.create_task(polled(there, f"a?since=1&epoch={old['epoch']}&timeout=60"))
        await waits_for(there, "a")
        for name in ("topics.db", "topics.db-wal", "topics.db-shm"):
            (tmp_path / name).unlink()
        new = await published(here, "a", "2")
        page = await waiting

    assert (new["version"], new["epoch"] != old["epoch"]) == (1, True)
    assert page["reset"] is True


class Backup:
    """The state of a store at one moment, which can be put back."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._file, self._copy = folder / "topics.db", folder / "backup.db"

    async def take(self) -> None:
        """Copy the file or the tables."""
        if self._store.startswith("sqlite"):
            with closing(sqlite3.connect(self._file)) as file:
                file.execute("VACUUM INTO ?", (str(self._copy),))
            return
        await self._execute("CREATE TABLE saved_{0} AS TABLE aiowheel_{0}")

    async def put_back(self) -> None:
        """Put the copy in the place of the present state, in one step."""
        if self._store.startswith("sqlite"):
            for end in ("-wal", "-shm"):
                self._file.with_name(f"topics.db{end}").unlink()
            self._copy.replace(self._file)
            return
        await self._execute(
            "DELETE FROM aiowheel_{0}; "
            "INSERT INTO aiowheel_{0} OVERRIDING SYSTEM VALUE SELECT * FROM saved_{0}"
        )

    async def _execute(self, statement: str) -> None:
        tables = ("topics", "messages", "removed_topics", "topic_totals")
        counters = ("topic_counters", "topic_epoch")
        asyncpg: Any = pytest.importorskip("asyncpg")
        connection = await asyncpg.connect(self._store)
        await connection.execute("; ".join(map(statement.format, tables + counters)))
        await connection.close()


@pytest.mark.posix
@pytest.mark.parametrize("first", ["poll", "publish"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_a_store_in_an_earlier_state_begins_new_epochs(
    pair: Pair, store: str, tmp_path: Path, first: str
) -> None:
    """Clients get a `reset` whichever process notices it; later polls wait, and miss nothing."""
    backup = Backup(store, tmp_path)
    async with pair() as (here, there):
        epoch = (await published(here, "b", "1"))["epoch"]
        old = await published(here, "a", "1", "2")
        await backup.take()
        await published(here, "a", *"345678")
        for client in (here, there):
            assert (await polled(client, "a?timeout=0"))["version"] == 8
        waiting = asyncio.create_task(polled(there, f"b?since=1&epoch={epoch}&timeout=60"))
        await waits_for(there, "b")
        await backup.put_back()
        if first == "publish":
            receipt = await published(here, "a", "new")
            assert receipt["epoch"] != old["epoch"]
        page = await polled(there, f"a?since=8&epoch={old['epoch']}&timeout=60")
        again = await polled(here, f"a?since=8&epoch={old['epoch']}&timeout=60")
        other = await waiting
        position = f"since={page['version']}&epoch={page['epoch']}"
        next_one = asyncio.create_task(polled(there, f"a?{position}&timeout=60"))
        await waits_for(there, "a")
        await published(here, "a", "next")
        followed = await next_one

    kept = ["1", "2", "new"] if first == "publish" else ["1", "2"]
    assert (data(page), page["reset"], page["epoch"] != old["epoch"]) == (kept, True, True)
    assert again == page
    assert (data(other), other["reset"]) == (["1"], True)
    assert (data(followed), followed["reset"]) == (["next"], False)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_a_store_that_loses_nothing_keeps_its_epochs(pair: Pair) -> None:
    """Reads and writes of several processes at the same time are no loss."""
    async with pair() as (here, there):
        first = await published(here, "a", "1")
        for _ in range(10):
            await asyncio.gather(
                published(here, "a", "2"),
                published(there, "a", "3"),
                *(polled(each, f"{topic}?timeout=0") for each in (here, there) for topic in "ab"),
            )
        last = await published(there, "a", "4")

    assert (last["epoch"], last["version"]) == (first["epoch"], 22)


@pytest.mark.posix
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_store_that_does_not_answer_is_503(pair: Pair, tmp_path: Path) -> None:
    """The answer has `Retry-After`; the process is alive and not ready."""
    async with pair() as (here, _):
        await published(here, "a", "1")
        file, away, folder = (tmp_path / name for name in ("topics.db", "away.db", "folder"))
        away.hardlink_to(file)
        folder.symlink_to(tmp_path)
        folder.replace(file)  # in one step, because the service creates a missing file
        answers = [
            await here.get("/topics/a"),
            await here.post("/topics/a", content="2"),
            await here.get("/health"),
        ]
        live, metrics = await here.get("/live"), await here.get("/metrics")
        away.replace(file)
        page = await polled(here, "a")

    assert [answer.status_code for answer in answers] == [503] * 3
    assert {answer.json()["error"] for answer in answers} == {"store_unavailable"}
    assert all(1 <= int(answer.headers["retry-after"]) <= 5 for answer in answers)
    assert (live.status_code, metrics.status_code) == (200, 200)
    assert data(page) == ["1"]


@pytest.mark.parametrize(
    "address",
    [
        "topics.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:////",
        "sqlite:///file:a",
        "mysql://a:secret@b/c",
        "",
    ],
)
def test_a_bad_address_is_refused(address: str) -> None:
    """The error names the legal forms, and leaves out the address, which may hold a password."""
    with pytest.raises(BadInputError, match="store must be sqlite:///PATH") as refused:
        TopicApp(store=address)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_names_must_fit_into_a_store(store: str) -> None:
    """The keys of a store have a maximum length."""
    with pytest.raises(BadInputError, match="name_length must be at most 1000 with a store"):
        TopicApp(Limits(name_length=1_001), store=store)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_command_names_its_option(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its user knows no argument `name_length`."""
    assert run(["serve", "--store", store, "--max-name", "1001"]) == 2

    error = "--max-name must be from 1 to 1000 with --store, got 1001"
    assert capsys.readouterr().err == f"aiowheel: {error}\n"


@pytest.mark.parametrize("path", ["missing/topics.db", "text.db"])
def test_a_store_that_cannot_be_used_is_one_error(tmp_path: Path, path: str) -> None:
    """The folder is missing, or the file is not a database; nothing is left beside it."""
    (tmp_path / "text.db").write_text("This is a text and no database at all.\n" * 10)

    with pytest.raises(AiowheelError, match="cannot use the store: "):
        asyncio.run(TopicApp(store=f"sqlite:///{tmp_path}/{path}").check_store())
    assert [each.name for each in tmp_path.iterdir()] == ["text.db"]


async def test_processes_that_begin_together_make_the_tables_once(store: str) -> None:
    """Each process can use the store, although it was empty at its first check."""
    await asyncio.gather(*(TopicApp(store=store).check_store() for _ in range(5)))


@pytest.mark.parametrize("end", ["/missing", ""])
async def test_a_server_that_cannot_be_used_is_one_error(postgres: str, end: str) -> None:
    """The database is missing, or no server listens on the port."""
    server = postgres.rpartition("/")[0]
    address = f"{server}{end}" if end else "postgresql://postgres@127.0.0.1:1/postgres"

    with pytest.raises(AiowheelError, match="cannot use the store: "):
        await TopicApp(store=address).check_store()


FULL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON aiowheel_messages EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_postgres_whose_disk_is_full_is_503_and_is_read(pair: Pair, store: str) -> None:
    """Publishes get 503 with `Retry-After` until there is room; polls are answered."""
    asyncpg: Any = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(store)
    async with pair() as (client, _):
        await published(client, "a", "1")
        await connection.execute(FULL)
        refused = await client.post("/topics/a", content="2")
        page = await polled(client, "a?since=0")
        await connection.execute("DROP TRIGGER full_disk ON aiowheel_messages")
        receipt = await published(client, "a", "3")
    await connection.close()

    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert 1 <= int(refused.headers["Retry-After"]) <= 5
    assert (data(page), receipt["version"]) == (["1"], 2)


class Fault:
    """A fault of a store that is none of its known temporary failures."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._file, self._away = folder / "topics.db", folder / "away.db"

    async def begin(self) -> None:
        """Replace the file by junk, or damage what the server holds."""
        if self._store.startswith("sqlite"):
            with closing(sqlite3.connect(self._file)) as file:
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # SQLite would read its log
            self._away.hardlink_to(self._file)
            junk = self._file.with_name("junk.db")
            junk.write_bytes(b"This is no database." * 500)
            junk.replace(self._file)
            return
        await self._on_server(
            "ALTER TABLE aiowheel_messages RENAME COLUMN data TO damaged",
            ["RENAME {aiowheel_topic}:meta away", "SET {aiowheel_topic}:meta junk"],
        )

    async def end(self) -> None:
        """Mend what `begin` has broken."""
        if self._store.startswith("sqlite"):
            self._away.replace(self._file)
            return
        await self._on_server(
            "ALTER TABLE aiowheel_messages RENAME COLUMN damaged TO data",
            ["RENAME away {aiowheel_topic}:meta"],
        )

    async def _on_server(self, statement: str, commands: list[str]) -> None:
        if self._store.startswith("unix"):
            redis: Any = pytest.importorskip("redis.asyncio")
            client = redis.Redis.from_url(self._store)
            for command in commands:
                await client.execute_command(*command.split())
            await client.aclose()
            return
        asyncpg: Any = pytest.importorskip("asyncpg")
        connection = await asyncpg.connect(self._store)
        await connection.execute(statement)
        await connection.close()


@pytest.mark.posix
async def test_every_error_of_a_store_is_503(
    pair: Pair, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The service logs one event for each operation, is alive, and serves once it can again."""
    fault = Fault(store, tmp_path)
    async with pair() as (here, _):
        await published(here, "a", "1")
        await fault.begin()
        answers = [
            answer
            for _ in range(2)
            for answer in (
                await here.get("/topics/a"),
                await here.post("/topics/a", content="2"),
            )
        ]
        stream = await here.get("/topics/a", headers={"Accept": "text/event-stream"})
        live, metrics = await here.get("/live"), await here.get("/metrics")
        await fault.end()
        page = await polled(here, "a")
        receipt = await published(here, "a", "2")

    assert [answer.status_code for answer in answers] == [503] * 4
    assert {answer.json()["error"] for answer in answers} == {"store_unavailable"}
    assert all(1 <= int(answer.headers["retry-after"]) <= 5 for answer in answers)
    assert (live.status_code, metrics.status_code) == (200, 200)
    assert b"id:" not in stream.content
    assert (data(page), receipt["version"]) == (["1"], 2)
    texts = [record.getMessage() for record in caplog.records]
    for operation in ("publish", "news"):
        beginning = f"aiowheel.topic_store_failed operation='{operation}' error="
        assert len([text for text in texts if text.startswith(beginning)]) == 1


async def test_health_and_removal_fail_as_other_operations_do() -> None:
    """An error of any kind is that of a store that is unavailable."""

    class Tables:
        append = None

        async def remove(self, _name: str) -> bool:
            raise ValueError("a fault")

        async def totals(self) -> None:
            raise KeyError("another fault")

    tables: Any = Tables()
    store = SharedStore(tables, Limits())

    with pytest.raises(StoreUnavailableError, match="the store failed: ValueError"):
        await store.remove("a")
    with pytest.raises(StoreUnavailableError, match="the store failed: KeyError"):
        await store.totals()


@pytest.mark.posix
async def test_a_service_that_cannot_start_closes_its_store(
    tmp_path: Path, serving: Serving
) -> None:
    """As when the path of a worker's folder is too long for a Unix socket."""
    app = TopicApp(store=f"sqlite:///{tmp_path / 't.db'}")
    app.be_worker(tmp_path / ("x" * 120), 1)

    with pytest.raises(BadInputError, match="folder must take a Unix socket"):
        async with serving(app):
            pass

    assert list((tmp_path / "t.db-hints").glob("*")) == []


async def test_a_close_that_is_cancelled_while_it_drains_closes_the_tables(tmp_path: Path) -> None:
    """A database that hangs must not keep the threads and the socket of a store."""
    store: Any = topic_store(f"sqlite:///{tmp_path / 't.db'}", Limits())
    hangs = asyncio.Event()

    async def append(_messages: object) -> None:
        hangs.set()
        await asyncio.Event().wait()

    async with Timer() as timer, Purgatory("topics", timer=timer) as purgatory:
        await store.open(timer, purgatory)
        store._tables.append = append
        publishing = asyncio.create_task(store.publish("a", b"1"))
        await hangs.wait()
        closing_store = asyncio.create_task(store.aclose())
        await asyncio.sleep(0)
        closing_store.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing_store
        publishing.cancel()
        await asyncio.wait([publishing])

    assert list((tmp_path / "t.db-hints").glob("*")) == []


class Tables:
    """The tables that a round of maintenance uses: they record its calls, and may fail."""

    append = None

    def __init__(self) -> None:
        self.is_away = False
        self.touched: list[list[str]] = []
        self.swept: list[float] = []

    async def touch(self, names: list[str]) -> None:
        """Record topics that are in use."""
        if self.is_away:
            raise StoreUnavailableError("away")
        self.touched.append(names)

    async def sweep(self, unused_for: float) -> bool:
        """Record the age at which topics are removed."""
        self.swept.append(unused_for)
        return False


async def test_topics_in_use_are_noted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for all topics would block the other clients of the store."""
    tables: Any = Tables()
    store = SharedStore(tables, Limits())
    names = [f"t{number}" for number in range(100_000)]
    monkeypatch.setattr(store, "_used", dict.fromkeys(names))
    await store._maintain()

    assert [name for part in tables.touched for name in part] == names
    assert max(map(len, tables.touched)) <= 1_000


async def test_no_topic_in_use_is_removed_after_an_outage() -> None:
    """Its use is noted later, and no process removes topics before all processes had the time."""
    tables: Any = Tables()
    store = SharedStore(tables, Limits(kept_seconds=80))  # a round lasts 10 seconds
    store._used["a"] = None
    tables.is_away = True
    await store._maintain()
    tables.is_away = False
    await store._maintain()
    assert tables.touched == [["a"]]
    await store._maintain()
    await store._maintain()
    assert tables.swept == []
    await store._maintain()

    assert tables.swept == [80 + 3 * 10]
