"""Subscriptions over websockets without a server, in virtual time."""

import asyncio
import json

import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")

from aiowheel.serve import Limits, TopicApp
from aiowheel.serve._parameters import Seen
from aiowheel.serve._topic_store import News
from aiowheel.testing import VirtualClock

from .conftest import Serving, Subscriber

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


async def test_a_subscriber_gets_kept_and_new_messages(serving: Serving) -> None:
    """Each message arrives once and in order."""
    app = TopicApp()
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        async with Subscriber(app, "/topics/a") as subscriber:
            await subscriber.accepted()
            assert [m["data"] for m in (await subscriber.message())["messages"]] == ["1"]
            for number in ("2", "3"):
                await client.post("/topics/a", content=number)
                assert [m["data"] for m in (await subscriber.message())["messages"]] == [number]


async def test_silence_is_filled_with_heartbeats(
    serving: Serving, virtual_clock: VirtualClock
) -> None:
    """A heartbeat follows each interval without a message."""
    app = TopicApp(Limits(heartbeat=20.0))
    async with serving(app) as client, Subscriber(app, "/topics/a") as subscriber:
        await subscriber.accepted()
        begun = virtual_clock.time()
        assert await subscriber.message() == {"heartbeat": True}
        await asyncio.sleep(15)
        await client.post("/topics/a", content="1")
        assert "messages" in await subscriber.message()
        assert await subscriber.message() == {"heartbeat": True}

    assert virtual_clock.time() - begun == pytest.approx(20 + 15 + 20, abs=0.1)


async def test_waits_that_end_without_news_cause_few_reads(
    serving: Serving, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter of a shared store may stand above the version of the topic."""
    app = TopicApp(Limits(heartbeat=20.0))
    store = app._service.store
    reads: list[float] = []
    read = store.news

    async def counted(name: str, has: Seen, most: int | None = None) -> News:
        reads.append(virtual_clock.time())
        assert len(reads) < 100
        return await read(name, has, most)

    def end_at_once(*_: object) -> asyncio.Future[bool]:
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.set_result(True)
        return waiting

    monkeypatch.setattr(store, "news", counted)
    monkeypatch.setattr(store, "wait", end_at_once)
    async with serving(app) as client, Subscriber(app, "/topics/a") as subscriber:
        await subscriber.accepted()
        await asyncio.sleep(20)
        assert 10 < len(reads) < 30
        await client.post("/topics/a", content="1")
        assert [m["data"] for m in (await subscriber.message())["messages"]] == ["1"]


async def test_a_returning_subscriber_gets_the_number_of_missed_messages(serving: Serving) -> None:
    """`since` and `epoch` have the meaning that they have in a poll."""
    app = TopicApp(Limits(kept_messages=2))
    async with serving(app) as client:
        for number in range(6):
            await client.post("/topics/a", content=f"{number}")
        async with Subscriber(app, "/topics/a", "since=1") as subscriber:
            await subscriber.accepted()
            answer = await subscriber.message()

    assert (answer["missed"], [m["data"] for m in answer["messages"]]) == (3, ["4", "5"])


async def test_a_removed_topic_begins_anew_for_its_subscribers(serving: Serving) -> None:
    """They get a reset, and continue with the new epoch."""
    app = TopicApp()
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        async with Subscriber(app, "/topics/a", "since=1") as subscriber:
            await subscriber.accepted()
            await asyncio.sleep(1)
            await client.delete("/topics/a")
            assert (await subscriber.message())["reset"] is True
            await client.post("/topics/a", content="2")
            assert (await subscriber.message())["version"] == 1


async def test_nothing_is_left_of_a_subscriber(serving: Serving) -> None:
    """Its messages are ignored; its disconnect removes its operation."""
    app = TopicApp()
    async with serving(app) as client:
        async with Subscriber(app, "/topics/a") as subscriber:
            await subscriber.accepted()
            subscriber.to_app.put_nowait({"type": "websocket.receive", "text": "hello?"})
            await asyncio.sleep(1)
            assert (await client.get("/health")).json()["waiters"] == 1
        await asyncio.sleep(0)

        assert (await client.get("/health")).json()["waiters"] == 0
        assert len(app._service.purgatory) == 0


@pytest.mark.parametrize(
    ("path", "query", "status", "error"),
    [
        ("/topics/a", "since=-1", 400, "bad_since"),
        ("/topics/a", "timeout=3", 400, "bad_parameter"),
        (f"/topics/{'n' * 999}", "", 400, "bad_name"),
    ],
)
async def test_a_bad_subscription_is_refused_in_the_handshake(
    serving: Serving, path: str, query: str, status: int, error: str
) -> None:
    """The HTTP answer has the body of any other refusal."""
    app = TopicApp()
    async with serving(app), Subscriber(app, path, query) as subscriber:
        start = await subscriber.from_app.get()
        body = await subscriber.from_app.get()

    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert json.loads(body["body"])["error"] == error


async def test_subscribers_count_as_waiting_clients(serving: Serving) -> None:
    """They share the limit of polls."""
    app = TopicApp(Limits(waiters=1))
    async with serving(app) as client, Subscriber(app, "/topics/a") as subscriber:
        await subscriber.accepted()
        poll = await client.get("/topics/a?timeout=1")
        async with Subscriber(app, "/topics/a", host="10.0.0.2") as second:
            start = await second.from_app.get()

    assert (poll.status_code, start["status"]) == (503, 503)


async def test_stopping_closes_every_subscription(serving: Serving) -> None:
    """The close code is 1012 (service restart), after which clients reconnect."""
    app = TopicApp()
    async with serving(app), Subscriber(app, "/topics/a") as subscriber:
        await subscriber.accepted()
        await asyncio.sleep(1)
        await app.stop()
        closing = await subscriber.from_app.get()

    assert (closing["type"], closing["code"]) == ("websocket.close", 1012)


async def test_messages_during_a_slow_send_are_not_lost(
    serving: Serving,
) -> None:
    """The subscriber gets every message, however long the sends before took."""
    app = TopicApp()
    async with serving(app) as client:
        async with Subscriber(app, "/topics/a", room=1) as subscriber:
            await subscriber.accepted()
            for number in range(5):
                await client.post("/topics/a", content=str(number))
                await asyncio.sleep(1)

            got: list[str] = []
            while len(got) < 5:
                got += [message["data"] for message in (await subscriber.message())["messages"]]

        assert got == ["0", "1", "2", "3", "4"]
