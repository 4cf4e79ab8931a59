"""Retention by age, in virtual time."""

import asyncio

import pytest

from aiowheel import ManualTimer
from aiowheel.serve import Limits, TopicApp
from aiowheel.serve._expiry import TopicExpiry
from aiowheel.serve._memory_topics import MemoryTopics
from aiowheel.serve._topics import Topics
from aiowheel.testing import VirtualClock

from .conftest import Serving, Subscriber

pytestmark = [pytest.mark.virtual_time, pytest.mark.one_build]

AGE = 100.0
MANY = 10_000


def memory_of(app: TopicApp) -> MemoryTopics:
    """Return the memory store of an application."""
    store = app._service.store
    assert isinstance(store, MemoryTopics)
    return store


async def test_ten_thousand_topics_of_one_message_expire(
    serving: Serving, virtual_clock: VirtualClock
) -> None:
    """Each expires at its time and not before; afterwards there is room for new topics."""
    app = TopicApp(Limits(kept_seconds=AGE, topics=MANY))
    service = memory_of(app)
    async with serving(app) as client:
        for number in range(MANY):
            service.expiry.note_published(
                service.topics.publish(f"t{number}", b"1", virtual_clock.time())
            )
            if number == MANY // 2:
                await asyncio.sleep(AGE / 2)
        refused = await client.post("/topics/one-more", content="x")
        await asyncio.sleep(AGE / 2 - 1)
        before = len(service.topics)
        await asyncio.sleep(2)
        half = len(service.topics)
        await asyncio.sleep(AGE / 2)

        assert (refused.status_code, before, half) == (429, MANY, MANY - MANY // 2 - 1)
        assert (len(service.topics), service.topics.size, service.expiry.expired) == (0, 0, MANY)
        assert (len(service.expiry._unused), service.expiry._oldest) == (0, {})
        assert (await client.post("/topics/one-more", content="x")).status_code == 201
        metrics = (await client.get("/metrics")).text
        assert "aiowheel_serve_expired_total 10000.0" in metrics.splitlines()


async def test_a_topic_that_is_read_stays(serving: Serving) -> None:
    """Its messages expire, but its version and epoch stay, so that readers get no reset."""
    app = TopicApp(Limits(kept_seconds=AGE))
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        for _ in range(5):
            await asyncio.sleep(AGE * 0.9)
            await client.get("/topics/a?since=0&timeout=0")
        answer = (await client.get("/topics/a?since=0&timeout=0")).json()
        await client.post("/topics/a", content="2")
        later = (await client.get(f"/topics/a?since=1&epoch={answer['epoch']}")).json()

    assert (answer["messages"], answer["missed"], answer["version"]) == ([], 1, 1)
    assert [message["data"] for message in later["messages"]] == ["2"]
    assert (later["reset"], later["version"]) == (False, 2)


async def test_a_topic_that_a_client_waits_for_stays(serving: Serving) -> None:
    """It stays during a poll or a subscription, and expires after their end."""
    app = TopicApp(Limits(kept_seconds=1.0))
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        poll = asyncio.create_task(client.get("/topics/a?since=1&timeout=60"))
        await asyncio.sleep(30)
        assert len(memory_of(app).topics) == 1
        assert (await poll).json()["version"] == 1

        async with Subscriber(app, "/topics/a", "since=1") as subscriber:
            await subscriber.accepted()
            await asyncio.sleep(30)
            assert len(memory_of(app).topics) == 1
        await asyncio.sleep(3)
        assert len(memory_of(app).topics) == 0


async def test_each_message_has_an_age_of_its_own(serving: Serving) -> None:
    """Old messages are dropped, young ones stay; a reader gets the number of missed ones."""
    app = TopicApp(Limits(kept_seconds=AGE))
    async with serving(app) as client:
        for number in range(6):
            await client.post("/topics/a", content=f"{number}")
            await asyncio.sleep(AGE / 4)
        answer = (await client.get("/topics/a")).json()

        assert [message["data"] for message in answer["messages"]] == ["3", "4", "5"]
        assert answer["missed"] == 3
        assert memory_of(app).topics.dropped == 3
        size = sum(topic.size for topic in memory_of(app).topics._by_name.values())
        assert memory_of(app).topics.size == size


async def test_a_removed_topic_has_no_deadlines(serving: Serving) -> None:
    """The timers of the removed topic do not affect a new topic of that name."""
    app = TopicApp(Limits(kept_seconds=AGE))
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        await asyncio.sleep(AGE * 0.9)
        await client.delete("/topics/a")
        assert len(memory_of(app).expiry._timer) == 0
        await client.post("/topics/a", content="2")
        await asyncio.sleep(AGE * 0.9)
        answer = (await client.get("/topics/a")).json()

    assert [message["data"] for message in answer["messages"]] == ["2"]


def test_messages_of_an_expired_topic_are_counted_as_dropped() -> None:
    """Its last message is younger than its last use: a use is recorded before the publication."""
    timer = ManualTimer()
    topics = Topics(Limits())
    expiry = TopicExpiry(topics, timer, AGE, lambda _name: False, topics.remove)
    expiry.note_published(topics.publish("a", b"1", timer.time()))
    expiry.note_used("a")
    timer.advance(1)
    expiry.note_published(topics.publish("a", b"2", timer.time()))

    timer.advance(AGE + 0.5)

    assert (len(topics), topics.size, expiry.expired, len(timer)) == (0, 0, 1, 0)
    assert (topics.published, topics.dropped) == (2, 2)


def test_a_use_at_the_last_moment_is_in_time() -> None:
    """A topic expires after its time, not at it; a later publish begins a new epoch."""
    timer = ManualTimer()
    topics = Topics(Limits())
    removed: list[str] = []

    def remove(name: str) -> None:
        topics.remove(name)
        removed.append(name)

    expiry = TopicExpiry(topics, timer, AGE, lambda _name: False, remove)
    expiry.note_published(topics.publish("a", b"1", timer.time()))
    timer.advance(AGE)
    assert removed == []
    expiry.note_used("a")
    timer.advance(AGE + 1)
    expiry.note_published(topics.publish("a", b"2", timer.time()))

    assert removed == ["a"]
    topic = topics.get("a")
    assert topic is not None
    assert (topic.version, len(topic)) == (1, 1)
    assert list(expiry._unused) == ["a"]


def test_a_publish_before_a_late_timer_is_kept() -> None:
    """The topic is due to expire and the timer is late; the message begins a new epoch."""
    timer = ManualTimer(tick=1.0)
    topics = Topics(Limits())
    expiry = TopicExpiry(topics, timer, AGE, lambda _name: False, topics.remove)
    first = topics.publish("a", b"1", timer.time())
    expiry.note_published(first)
    timer.advance(AGE + 0.5)
    assert topics.get("a") is first

    expiry.note_used("a")  # `MemoryTopics.publish` calls this before it publishes
    second = topics.publish("a", b"2", timer.time())
    expiry.note_published(second)

    assert (second is not first, second.version, expiry.expired) == (True, 1, 1)
    timer.advance(AGE - 1)
    assert (topics.get("a"), len(second)) == (second, 1)
    timer.advance(3)
    assert (topics.get("a"), topics.size, len(timer)) == (None, 0, 0)


def test_a_read_before_a_late_timer_leaves_no_key() -> None:
    """The read finds that the topic has expired, and keeps no idle entry for it."""
    timer = ManualTimer(tick=1.0)
    topics = Topics(Limits())
    expiry = TopicExpiry(topics, timer, AGE, lambda _name: False, topics.remove)
    expiry.note_published(topics.publish("a", b"1", timer.time()))
    timer.advance(AGE + 0.5)

    expiry.note_used("a")

    assert (topics.get("a"), len(expiry._unused), len(timer)) == (None, 0, 0)
