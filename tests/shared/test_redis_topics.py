"""Topics in a Redis that restarts or fails over: the epoch shows whether the history was kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette")
pytest.importorskip("redis")

from redis.asyncio import Redis
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from aiowheel.errors import BadInputError, StoreUnavailableError
from aiowheel.serve import Limits, TopicApp
from aiowheel.serve._redis_topics import RedisTopics

from .servers import (
    PATIENCE,
    RedisServer,
    cluster_nodes,
    folder_for,
    holds,
    missing_is_skipped,
    redis_that_stops,
    sentinel_with_a_replica,
)

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]


@contextlib.asynccontextmanager
async def client_of(store: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Open a client of an application on a store."""
    app = TopicApp(store=store)
    transport = httpx.ASGITransport(app)
    async with (
        app._app.router.lifespan_context(app._app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def published(client: httpx.AsyncClient, text: str) -> dict[str, Any]:
    """Publish a text, repeatedly while the store does not answer; return the receipt."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await client.post("/topics/a", content=text)).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


async def polled(client: httpx.AsyncClient, query: str) -> dict[str, Any]:
    """Poll repeatedly while the store does not answer; return the answer."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await client.get(f"/topics/a?{query}")).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def data(page: dict[str, Any]) -> list[object]:
    """Return the messages of an answer, without their versions."""
    return [message["data"] for message in page["messages"]]


async def restart(server: RedisServer) -> None:
    """Kill the server and start it again."""
    server.kill()
    await asyncio.to_thread(server.start)


async def test_a_redis_that_lost_everything_begins_anew() -> None:
    """Waiting and returning clients get a reset; the numbers of changes do not repeat."""
    with missing_is_skipped(), redis_that_stops() as server:
        async with client_of(server.address) as client:
            old = await published(client, "1")
            query = f"since=1&epoch={old['epoch']}&timeout=60"
            waiting = asyncio.create_task(polled(client, query))
            await asyncio.sleep(0)
            await restart(server)
            new = await published(client, "2")
            page = await waiting
            again = await polled(client, query)

    assert (new["version"], new["epoch"] != old["epoch"]) == (1, True)
    assert page["reset"] is True
    assert (again["reset"], again["epoch"], data(again)) == (True, new["epoch"], ["2"])


async def test_a_redis_that_writes_every_command_keeps_the_epoch() -> None:
    """The history is kept, so a client continues from its last version."""
    words = ("--appendonly", "yes", "--appendfsync", "always")
    with missing_is_skipped(), redis_that_stops(*words) as server:
        async with client_of(server.address) as client:
            old = await published(client, "1")
            await restart(server)
            new = await published(client, "2")
            page = await polled(client, f"since=1&epoch={old['epoch']}")

    assert (new["version"], new["epoch"]) == (2, old["epoch"])
    assert (page["reset"], data(page)) == (False, ["2"])


async def test_a_redis_that_may_have_lost_writes_gets_new_epochs() -> None:
    """The remaining messages stay, and a client gets all of them again."""
    words = ("--appendonly", "yes", "--appendfsync", "everysec")
    with missing_is_skipped(), redis_that_stops(*words) as server:
        async with client_of(server.address) as client:
            old = await published(client, "1")
            server.ask("SHUTDOWN")
            server.kill()
            await asyncio.to_thread(server.start)
            page = await polled(client, f"since=1&epoch={old['epoch']}")
            new = await published(client, "2")

    assert (new["version"], new["epoch"] != old["epoch"]) == (2, True)
    assert (page["reset"], page["epoch"], data(page)) == (True, new["epoch"], ["1"])


async def test_a_failover_ends_the_epoch() -> None:
    """The new master reuses a version of the old one, and a waiting client gets a reset at once."""
    with (
        missing_is_skipped(),
        sentinel_with_a_replica() as (master, replica, sentinel),
    ):
        await holds(lambda: "slaves=1" in sentinel.ask("INFO", "sentinel"))
        await holds(lambda: "master_link_status:up" in replica.ask("INFO", "replication"))
        address = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        async with client_of(address) as client:
            await published(client, "kept")
            await holds(lambda: replica.ask("XLEN", "{aiowheel_topic}:m:a") == "1")
            replica.ask("REPLICAOF", "127.0.0.1", "1")  # it gets no more data
            lost = await published(client, "lost")
            query = f"since=2&epoch={lost['epoch']}&timeout=60"
            waiting = asyncio.create_task(polled(client, query))
            master.kill()
            await holds(lambda: "role:master" in replica.ask("INFO", "replication"))
            page = await waiting
            new = await published(client, "new")
            again = await polled(client, query)

    assert lost["version"] == 2
    assert (page["reset"], data(page)) == (True, ["kept"])
    assert (new["version"], new["epoch"] != lost["epoch"]) == (2, True)
    assert data(again) == ["kept", "new"]


@pytest.mark.thorough
async def test_a_cluster_serves_topics() -> None:
    """All keys of topics and counters are in one slot."""
    with missing_is_skipped(), folder_for("cluster") as folder:
        nodes = await asyncio.to_thread(cluster_nodes, folder, 3)
        try:
            address = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
            async with client_of(address) as client:
                receipt = await published(client, "1")
                query = f"since=1&epoch={receipt['epoch']}&timeout=60"
                waiting = asyncio.create_task(polled(client, query))
                await published(client, "2")
                page = await waiting
                removed = await client.delete("/topics/a")
        finally:
            for node in nodes:
                node.kill()

    assert (page["reset"], data(page), removed.status_code) == (False, ["2"], 204)


@pytest.mark.thorough
async def test_a_message_whose_answer_is_lost_is_kept_once_in_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing repeats the publish: the first one may have been made."""
    with missing_is_skipped(), folder_for("cluster") as folder:
        nodes = await asyncio.to_thread(cluster_nodes, folder, 3)
        try:
            async with client_of(f"redis+cluster://127.0.0.1:{nodes[0].port}") as client:
                await published(client, "1")
                read = Connection.read_response

                async def lose(connection: Connection, *arguments: Any, **options: Any) -> None:
                    patched.undo()  # only one answer is lost
                    await read(connection, *arguments, **options)
                    await connection.disconnect(nowait=True)
                    raise RedisConnectionError("the answer is lost")

                with monkeypatch.context() as patched:
                    patched.setattr(Connection, "read_response", lose)
                    refused = await client.post("/topics/a", content="2")
                page = await polled(client, "since=0")
        finally:
            for node in nodes:
                node.kill()

    assert (refused.status_code, data(page)) == (503, ["1", "2"])


async def test_a_redis_that_does_not_answer_is_503() -> None:
    """The answer has `Retry-After`, and the process is still live."""
    with missing_is_skipped(), redis_that_stops() as server:
        async with client_of(server.address) as client:
            await published(client, "1")
            server.kill()
            answer = await client.get("/topics/a")
            live = await client.get("/live")

    assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
    assert live.status_code == 200


async def test_a_redis_without_memory_is_503_and_is_read() -> None:
    """The server refuses messages until a removal makes room."""
    with missing_is_skipped(), redis_that_stops() as server:
        async with client_of(server.address) as client, Redis.from_url(server.address) as redis:
            await published(client, "1")
            await redis.config_set("maxmemory", 1)
            refused = await client.post("/topics/a", content="2")
            page = await polled(client, "since=0")
            removed = await client.delete("/topics/a")
            await redis.config_set("maxmemory", 0)
            receipt = await published(client, "3")

    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert (data(page), removed.status_code, receipt["version"]) == (["1"], 204, 1)


async def test_a_redis_with_too_few_replicas_is_503_and_is_read() -> None:
    """The server refuses messages until enough replicas are connected again."""
    with missing_is_skipped(), redis_that_stops() as server:
        async with client_of(server.address) as client, Redis.from_url(server.address) as redis:
            await published(client, "1")
            await redis.config_set("min-replicas-to-write", 1)
            refused = await client.post("/topics/a", content="2")
            page = await polled(client, "since=0")
            await redis.config_set("min-replicas-to-write", 0)
            receipt = await published(client, "3")

    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert (data(page), receipt["version"]) == (["1"], 2)


async def test_messages_that_were_removed_by_hand_do_not_hang_the_server() -> None:
    """The sweep does not search endlessly for removed messages."""
    with missing_is_skipped(), redis_that_stops() as server:
        topics = RedisTopics(server.address, Limits(kept_seconds=0.001))
        async with Redis.from_url(server.address) as redis:
            await topics.prepare()
            await topics.append([("a", b"1"), ("a", b"2")])
            await redis.delete("{aiowheel_topic}:m:a")
            await asyncio.sleep(0.01)
            await topics.sweep(1000)
            totals = await topics.totals()
        await topics.counters.aclose()

    assert (totals.size, totals.dropped) == (0, 2)


async def test_a_server_that_restarts_again_and_again_does_not_answer() -> None:
    """The call raises after three runs."""
    topics = RedisTopics("redis://127.0.0.1:1", Limits())
    runs = iter(range(9))

    async def script(*_: object) -> list[bytes]:
        return [b"run", b"%d" % next(runs)]

    async def has_kept_all() -> bool:
        return True

    topics._totals = script
    topics.counters.has_kept_all = has_kept_all  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError, match="restarted three times"):
        await topics.totals()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("redis+sentinel://a:secret@127.0.0.1:26379", "must end with /master"),
        ("redis+cluster://:secret@", "must name hosts and ports"),
        ("redis://a:sec/secret@127.0.0.1/0", "%2F in place of a slash in the password"),
    ],
)
def test_a_bad_address_is_refused(address: str, text: str) -> None:
    """The error names the flaw, and does not contain the password of the address."""
    with pytest.raises(BadInputError, match=text) as refused:
        TopicApp(store=address)
    assert "secret" not in str(refused.value)
