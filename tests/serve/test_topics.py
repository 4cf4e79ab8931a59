"""The messages that topics keep, and their limits."""

import json
import tracemalloc
from typing import cast

import pytest

pytest.importorskip("starlette")

from aiowheel.serve import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topics import OVERHEAD, Topics

pytestmark = pytest.mark.one_build


def news(topics: Topics, name: str, since: int = 0, epoch: str | None = None) -> dict[str, object]:
    """Return the answer for a client that has seen *since*."""
    topic = topics.get(name)
    assert topic is not None
    answer: dict[str, object] = json.loads(topics.page(topic, since, epoch, None)[0])
    return answer


def data(answer: dict[str, object]) -> list[object]:
    """Return the data of the messages of an answer."""
    messages = answer["messages"]
    assert isinstance(messages, list)
    return [message["data"] for message in cast("list[dict[str, object]]", messages)]


def test_messages_are_numbered_from_one() -> None:
    """The version of a topic is the number of its last message."""
    topics = Topics(Limits())
    topics.publish("a", b'"x"')
    topics.publish("a", b'{"y":[1]}')

    answer = news(topics, "a")

    assert answer["version"] == 2
    assert answer["messages"] == [{"version": 1, "data": "x"}, {"version": 2, "data": {"y": [1]}}]
    assert (answer["missed"], answer["reset"]) == (0, False)


def test_an_answer_holds_only_newer_messages() -> None:
    """The answer is rendered once for all clients with the same version."""
    topics = Topics(Limits())
    topic = topics.publish("a", b"0")
    for number in range(1, 5):
        topics.publish("a", b"%d" % number)

    assert data(news(topics, "a", 3)) == [3, 4]
    assert data(news(topics, "a", 5)) == []
    assert topics.page(topic, 2, None, None) is topics.page(topic, 2, None, None)


def test_answers_are_cached_for_one_topic_only() -> None:
    """Polls of many topics do not multiply the memory of the messages."""
    topics = Topics(Limits())
    found = [topics.publish(f"t{number}", b"1" * 60_000) for number in range(100)]

    tracemalloc.start()
    try:
        for topic in found:
            assert len(topics.page(topic, 0, None, None)[0]) > 60_000
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 10 * 60_000


def test_a_new_message_is_in_the_next_answer() -> None:
    """A publish invalidates the cached answers."""
    topics = Topics(Limits())
    topics.publish("a", b"1")
    assert data(news(topics, "a")) == [1]

    topics.publish("a", b"2")

    assert data(news(topics, "a")) == [1, 2]


def test_an_answer_counts_missed_messages() -> None:
    """Messages beyond the limits are dropped and counted."""
    topics = Topics(Limits(kept_messages=3))
    for number in range(1, 11):
        topics.publish("a", b"%d" % number)

    answer = news(topics, "a", 4)

    assert data(answer) == [8, 9, 10]
    assert answer["missed"] == 3
    assert topics.dropped == 7
    assert news(topics, "a", 8)["missed"] == 0


@pytest.mark.parametrize(("since", "epoch"), [(9, None), (1, "00000000")])
def test_a_client_of_another_epoch_gets_everything(since: int, epoch: str | None) -> None:
    """Versions of another epoch have no meaning: the answer has all messages and `reset`."""
    topics = Topics(Limits())
    topics.publish("a", b"1")
    topics.publish("a", b"2")

    answer = news(topics, "a", since, epoch)

    assert answer["reset"] is True
    assert data(answer) == [1, 2]


def test_a_message_counts_as_its_data_and_the_overhead() -> None:
    """The stores count in the same way, and dropped messages count as kept ones did."""
    topics = Topics(Limits(kept_messages=3))
    for number in range(8, 13):  # the numbers of versions get longer
        topics.publish("a", b"%d" % number)

    assert topics.size == 3 * (2 + OVERHEAD)
    assert topics.size == topics._by_name["a"].size


def test_bytes_of_a_topic_are_bounded() -> None:
    """The oldest messages are dropped first; the last one stays, whatever its size."""
    topics = Topics(Limits(kept_bytes=1_000))
    for _ in range(20):
        topics.publish("a", b'"%b"' % (b"x" * 50))
    assert topics.size <= 1_000

    topics.publish("a", b'"%b"' % (b"y" * 2_000))

    assert data(news(topics, "a")) == ["y" * 2_000]


def test_bytes_of_all_topics_are_bounded() -> None:
    """The topic with the oldest last publish loses messages, and keeps its version."""
    topics = Topics(Limits(kept_bytes_in_all=3 * (OVERHEAD + 100)))
    for name in ("a", "b", "c", "a", "d", "e"):
        topics.publish(name, b'"%b"' % (b"x" * 50))

    assert topics.size <= 3 * (OVERHEAD + 100)
    assert data(news(topics, "b")) == []
    assert news(topics, "b")["version"] == 1
    assert news(topics, "b")["missed"] == 1
    assert data(news(topics, "e")) == ["x" * 50]
    assert topics.size == sum(topic.size for topic in topics._by_name.values())


def test_topics_are_bounded() -> None:
    """A topic above the limit is refused; existing topics still accept messages."""
    topics = Topics(Limits(topics=2))
    topics.publish("a", b"1")
    topics.publish("b", b"1")

    with pytest.raises(Refusal, match="at most 2 topics may exist"):
        topics.publish("c", b"1")

    topics.publish("a", b"2")
    assert len(topics) == 2


def test_a_removed_topic_makes_room() -> None:
    """Its name can be used again, with a new epoch."""
    topics = Topics(Limits(topics=1))
    old = topics.publish("a", b"1")
    assert topics.remove("a") is old
    assert topics.remove("a") is None
    assert topics.size == 0

    new = topics.publish("a", b"2")

    assert new.version == 1
    assert new.epoch != old.epoch


@pytest.mark.parametrize(
    ("name", "value"),
    [("topics", 0), ("body_bytes", -1), ("heartbeat", 0.0), ("heartbeat", float("nan"))],
)
def test_a_limit_out_of_range_is_refused(name: str, value: float) -> None:
    """The constructor raises, and names the limit and the value."""
    with pytest.raises(ValueError, match=rf"{name} must be .*, got {value}"):
        Limits(**{name: value})  # type: ignore[arg-type]
