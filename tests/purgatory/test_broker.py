"""The example broker: three kinds of requests that may have to wait, and their answers."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from aiowheel import ManualTimer, Purgatory, Timer
from examples.broker.broker import Broker
from examples.broker.client import Client
from examples.broker.server import serving

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
Until = Callable[[Callable[[], object]], Awaitable[None]]
Answer = dict[str, Any]


@pytest.fixture
def broker(timer: ManualTimer) -> Broker:
    """The leader of two partitions with two followers, on a manual clock."""
    return Broker(timer, ["orders", "payments"], ["left", "right"])


def done(waiting: Awaitable[object]) -> bool:
    """Return whether the answer is there."""
    return cast("asyncio.Future[object]", waiting).done()


def purgatories(broker: Broker) -> list[Purgatory]:
    """Return all purgatories of the broker."""
    coordinator = broker.coordinator
    return [
        broker.produces,
        broker.fetches,
        broker.watermarks,
        coordinator.joins,
        coordinator.heartbeats,
    ]


# --- produce -------------------------------------------------------------------------------------


async def test_produce_waits_for_the_slowest_follower(broker: Broker) -> None:
    """Both followers must have copied all partitions; the second one's fetch completes it."""
    answer = broker.produce({"orders": ["a", "b"], "payments": ["c"]})

    broker.copy("left", {"orders": 2, "payments": 1})
    broker.copy("right", {"orders": 1, "payments": 1})
    assert not done(answer)
    broker.copy("right", {"orders": 2})

    assert await answer == {"orders": "NONE", "payments": "NONE"}
    assert (len(broker.produces), broker.produces.watched) == (0, 0)


async def test_produce_times_out_after_30_seconds(broker: Broker, timer: ManualTimer) -> None:
    """The answer lists the partitions that were confirmed and those that were not."""
    answer = broker.produce({"orders": ["a"], "payments": ["b"]})
    for follower in ("left", "right"):
        broker.copy(follower, {"orders": 1}, max_wait=60)

    timer.advance(29.999)
    assert not done(answer)
    timer.advance(0.001)

    assert await answer == {"orders": "NONE", "payments": "REQUEST_TIMED_OUT"}
    assert broker.logs["payments"].end == 1  # a timeout does not undo the write


async def test_produce_without_followers_is_answered_at_once(timer: ManualTimer) -> None:
    """No operation is watched and no timer armed."""
    broker = Broker(timer, ["orders"])

    assert await broker.produce({"orders": ["a"]}) == {"orders": "NONE"}
    assert len(timer) == 0


async def test_acks_all_with_counters(broker: Broker, timer: ManualTimer) -> None:
    """`wait_until` gives the same answers, and a watermark checks only what it completes."""
    early = broker.produce_counted({"orders": ["a"]})
    both = broker.produce_counted({"orders": ["b"], "payments": ["c"]})
    never = broker.produce_counted({"payments": ["d"]})

    for follower in ("left", "right"):
        broker.copy(follower, {"orders": 1}, max_wait=60)
    assert (done(early), done(both)) == (True, False)
    for follower in ("left", "right"):
        broker.copy(follower, {"orders": 2, "payments": 1}, max_wait=60)
    timer.advance(30)

    assert (await early, await both, await never) == (True, True, False)


# --- fetch ---------------------------------------------------------------------------------------


async def test_fetch_waits_for_min_bytes_over_several_partitions(timer: ManualTimer) -> None:
    """The bytes of both partitions count, and the answer has the records of both."""
    broker = Broker(timer, ["orders", "payments"])
    answer = broker.fetch({"orders": 0, "payments": 0}, min_bytes=10, max_wait=5)

    broker.produce({"orders": ["12345"]})
    broker.produce({"payments": ["1234"]})
    assert not done(answer)
    broker.produce({"orders": ["6"]})

    assert await answer == {"orders": ["12345", "6"], "payments": ["1234"]}


async def test_fetch_returns_the_available_records_after_max_wait(timer: ManualTimer) -> None:
    """The answer has fewer bytes than requested."""
    broker = Broker(timer, ["orders"])
    answer = broker.fetch({"orders": 0}, min_bytes=100, max_wait=0.5)
    broker.produce({"orders": ["a"]})

    timer.advance(0.5)

    assert await answer == {"orders": ["a"]}


async def test_fetch_returns_only_committed_records(broker: Broker) -> None:
    """A follower reads beyond the committed offset, which is how records become committed."""
    consumer = broker.fetch({"orders": 0}, max_wait=5)
    left, right = (broker.copy(name, {"orders": 0}, max_wait=5) for name in ("left", "right"))
    broker.produce({"orders": ["a"]})

    assert await left == await right == {"orders": ["a"]}
    assert not done(consumer)
    broker.copy("left", {"orders": 1})
    assert not done(consumer)
    broker.copy("right", {"orders": 1})

    assert await consumer == {"orders": ["a"]}


async def test_min_bytes_with_a_counter(timer: ManualTimer) -> None:
    """The committed size of one partition only grows, so a counter can represent it."""
    broker = Broker(timer, ["orders"])
    broker.produce({"orders": ["12345"]})
    enough = broker.wait_for_bytes("orders", position=5, min_bytes=6, max_wait=5)
    too_much = broker.wait_for_bytes("orders", position=5, min_bytes=60, max_wait=5)

    broker.produce({"orders": ["12345"]})
    assert not done(enough)
    broker.produce({"orders": ["6"]})
    timer.advance(5)

    assert (await enough, await too_much) == (True, False)


# --- join ----------------------------------------------------------------------------------------


async def start(waiting: Awaitable[Answer]) -> "asyncio.Future[Answer]":
    """Begin to wait, up to the first await that blocks."""
    future = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    return future


async def test_join_waits_for_all_members(broker: Broker) -> None:
    """The first member is alone at once; the second waits until the first has joined again."""
    coordinator = broker.coordinator
    alone = await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))
    assert not bob.done()
    assert coordinator.heartbeat("group", "ada") == {"error": "REBALANCE_IN_PROGRESS"}

    ada = await coordinator.join("group", "ada")

    assert alone == {"error": "NONE", "generation": 1, "members": ["ada"]}
    assert ada == await bob == {"error": "NONE", "generation": 2, "members": ["ada", "bob"]}
    assert coordinator.heartbeat("group", "ada") == {"error": "NONE"}


async def test_join_goes_on_without_missing_members(broker: Broker, timer: ManualTimer) -> None:
    """The join goes on after the rebalance timeout; a late member gets an error."""
    coordinator = Broker(timer, [], rebalance_timeout=5).coordinator
    await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))

    timer.advance(5)

    assert await bob == {"error": "NONE", "generation": 2, "members": ["bob"]}
    assert coordinator.heartbeat("group", "ada") == {"error": "UNKNOWN_MEMBER_ID"}


async def test_a_member_that_leaves_may_be_the_last_one_missing(broker: Broker) -> None:
    """The other members need not wait for the timeout."""
    coordinator = broker.coordinator
    await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))

    coordinator.leave("group", "ada")

    assert (await bob)["members"] == ["bob"]


async def test_the_session_of_a_removed_member_does_not_fire(timer: ManualTimer) -> None:
    """Otherwise its later silence would rebalance a group that is complete."""
    coordinator = Broker(timer, [], session_timeout=10).coordinator
    await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))
    await coordinator.join("group", "ada")
    await bob

    coordinator.leave("group", "bob")
    joining = await start(coordinator.join("group", "ada"))
    generation = (await joining)["generation"]
    for _ in range(6):
        timer.advance(5)
        assert coordinator.heartbeat("group", "ada") == {"error": "NONE"}

    assert (await coordinator.join("group", "ada"))["generation"] == generation + 1
    assert len(coordinator.heartbeats) == 1


async def test_silence_rebalances_the_others(timer: ManualTimer) -> None:
    """An expired session removes its member."""
    coordinator = Broker(timer, [], session_timeout=10).coordinator
    await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))
    await coordinator.join("group", "ada")
    await bob

    timer.advance(9)
    coordinator.heartbeat("group", "ada")
    timer.advance(1)

    assert coordinator.heartbeat("group", "ada") == {"error": "REBALANCE_IN_PROGRESS"}
    assert (await coordinator.join("group", "ada"))["members"] == ["ada"]


async def test_a_disconnected_member_does_not_cancel_the_rebalance(broker: Broker) -> None:
    """Several tasks await one operation, each through its own shield."""
    coordinator = broker.coordinator
    await coordinator.join("group", "ada")
    bob = await start(coordinator.join("group", "bob"))
    eve = await start(coordinator.join("group", "eve"))

    eve.cancel()
    await asyncio.wait([eve])
    await coordinator.join("group", "ada")

    assert (await bob)["members"] == ["ada", "bob", "eve"]


# --- over TCP ------------------------------------------------------------------------------------


@pytest.mark.realtime
@pytest.mark.both_loops
async def test_all_three_over_tcp() -> None:
    """Several requests wait on one connection; requests on another one complete them."""
    async with Timer() as timer:
        broker = Broker(timer, ["orders"], ["follower"])
        async with serving(broker) as port, Client(port) as one, Client(port) as two:
            fetch = asyncio.create_task(
                one.call("fetch", offsets={"orders": 0}, min_bytes=2, max_wait=30)
            )
            produce = asyncio.create_task(one.call("produce", batches={"orders": ["ab"]}))
            copy = await two.call("copy", follower="follower", offsets={"orders": 0}, max_wait=30)
            assert copy == {"orders": ["ab"]}
            await two.call("copy", follower="follower", offsets={"orders": 1}, max_wait=0.001)
            assert await produce == {"orders": "NONE"}
            assert await fetch == {"orders": ["ab"]}

            await one.call("join", name="group", member="ada")
            bob = asyncio.create_task(two.call("join", name="group", member="bob"))
            while (await one.call("heartbeat", name="group", member="ada"))["error"] == "NONE":
                pass
            ada = await one.call("join", name="group", member="ada")
            assert ada == await bob
            assert "no call 'sing'" in (await one.call("sing"))["error"]
        assert [len(room) for room in purgatories(broker)] == [0] * 5
        assert len(timer) == 0


@pytest.mark.both_loops
async def test_a_client_that_hangs_up_leaves_nothing(until: Until) -> None:
    """Its waiting requests are removed from the wheel and from every list."""
    async with Timer() as timer:
        broker = Broker(timer, ["orders", "payments"], ["follower"])
        async with serving(broker) as port:
            async with Client(port) as client:
                waiting = [
                    asyncio.create_task(
                        client.call("fetch", offsets={"orders": 0, "payments": 0}, max_wait=30)
                    ),
                    asyncio.create_task(client.call("produce", batches={"orders": ["a"]})),
                ]
                await until(lambda: len(broker.fetches) == len(broker.produces) == 1)
            await until(lambda: len(timer) == 0)

            assert [room.watched for room in purgatories(broker)] == [0] * 5
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(end) for end in ends} == {ConnectionResetError}


async def test_closing_does_not_expire_the_members(broker: Broker, timer: ManualTimer) -> None:
    """A member that seems silent would begin a rebalance in a closed purgatory."""
    first = asyncio.create_task(broker.coordinator.join("group", "ada"))
    await asyncio.sleep(0)
    second = asyncio.create_task(broker.coordinator.join("group", "bob"))
    await asyncio.sleep(0)
    await broker.coordinator.join("group", "ada")
    await asyncio.wait([first, second])
    assert len(broker.coordinator.heartbeats) == 2

    await broker.aclose()

    timer.advance(0)  # would raise an error that no task received
    assert broker.coordinator.heartbeats.statistics().failed == 0
    assert len(timer) == 0


async def test_a_refused_produce_writes_nothing(broker: Broker) -> None:
    """Otherwise the log would hold part of a request that was answered with an error."""
    with pytest.raises(KeyError):
        broker.produce({"orders": ["a"], "refunds": ["b"]})

    assert broker.logs["orders"].end == 0


async def test_a_request_that_cannot_be_met_is_answered() -> None:
    """The answer is an error, because no later answer would come."""
    async with Timer() as timer:
        broker = Broker(timer, ["orders"])
        async with serving(broker) as port, Client(port) as client:
            requests: list[tuple[str, Answer, str]] = [
                ("fetch", {"offsets": {"payments": 0}}, "payments"),
                ("produce", {"batch": ["a"]}, "batch"),
                ("fetch", {"offsets": {}}, "at least one key"),
                ("fetch", {"offsets": {"orders": 0}, "max_wait": math.nan}, "NaN"),
                ("copy", {"follower": "left", "offsets": ["orders"]}, "items"),
            ]
            for call, arguments, reason in requests:
                async with asyncio.timeout(5):
                    answer = await client.call(call, **arguments)
                assert reason in answer["error"]


async def test_a_request_to_a_broker_that_has_hung_up_raises() -> None:
    """The pending request raises, because no answer would come."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with Client(server.sockets[0].getsockname()[1]) as client:
        async with asyncio.timeout(5):
            await asyncio.wait([client._listener])
            with pytest.raises(ConnectionError, match="closed the connection"):
                await client.call("fetch", offsets={"orders": 0})
    server.close()


@pytest.mark.slow
def test_the_example_runs_to_its_end() -> None:
    """`python -m examples.broker` needs no network and ends with nothing pending."""
    path = [str(ROOT), *sys.path]
    code = f"import sys, runpy; sys.path = {path[1:]!r} + {path[:1]!r}; "
    result = subprocess.run(
        [sys.executable, "-c", code + "runpy.run_module('examples.broker', run_name='__main__')"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    assert (result.returncode, result.stderr) == (0, "")
    told = [line.partition("s  ")[2] for line in result.stdout.splitlines()]
    second = {"error": "NONE", "generation": 2, "members": ["ada", "bob"]}
    third = {"error": "NONE", "generation": 3, "members": ["bob"]}
    assert told == [
        "no follower yet: produced False, fetched False",
        "a follower came: produce answers {'orders': 'NONE'}",
        "8 bytes are committed: fetch answers {'orders': ['apple', 'banana']}",
        "the follower is gone: produce answers {'orders': 'REQUEST_TIMED_OUT'}",
        "ada joins: {'error': 'NONE', 'generation': 1, 'members': ['ada']}",
        "bob wants to join; ada's heartbeat says REBALANCE_IN_PROGRESS",
        f"ada joined again, and so bob: {second}",
        f"bob joins again, ada does not in time: {third}",
        "0 timeouts and 0 watchers are left",
    ]
