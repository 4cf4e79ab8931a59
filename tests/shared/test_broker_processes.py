"""The example broker as several processes, which are killed and started again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from examples.broker import cluster as example
from examples.broker.client import Client
from examples.broker.cluster import NAMES, Cluster
from examples.broker.frames import MAX_BYTES

from .servers import PATIENCE

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster whose processes run in the checkout, which has the examples."""
    monkeypatch.chdir(ROOT)
    return Cluster(tmp_path)


async def test_the_example_prints_its_expected_output(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A produce waits for followers, each process answers fetches, and a killed one restarts."""
    try:
        await example.main(cluster)
    finally:
        await cluster.kill_all()

    assert example.__doc__ is not None
    expected = example.__doc__.partition("Prints:\n")[2]
    assert capsys.readouterr().out.split() == expected.split()


async def test_every_process_has_the_acknowledged_records(cluster: Cluster) -> None:
    """Each log has every record once, in one order, although each process was killed meanwhile."""
    rng = random.Random(1)
    acknowledged: list[str] = []

    async def produce(number: int) -> None:
        record = f"record {number}"
        try:
            answer = await cluster.call(
                rng.choice(NAMES), "produce", records=[record], max_wait=PATIENCE
            )
        except OSError:  # the process, or the leader that it asked, was killed
            return
        if answer == "NONE":
            acknowledged.append(record)

    try:
        await asyncio.gather(*map(cluster.start, NAMES))
        numbers = iter(range(10_000))
        for name in ("right", "left", "leader"):
            producing = [asyncio.create_task(produce(next(numbers))) for _ in range(20)]
            while not any(task.done() for task in producing):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await cluster.kill(name)
            await cluster.start(name)
            await asyncio.gather(*producing, produce(next(numbers)))
        async with asyncio.timeout(PATIENCE):
            last: str | None = None
            while last not in acknowledged:  # a call of a killed process may raise
                last = f"record {len(acknowledged)} is the last"
                answer = await cluster.call("left", "produce", records=[last], max_wait=PATIENCE)
                if answer == "NONE":
                    acknowledged.append(last)
        logs = [await cluster.call(name, "fetch", offset=0, max_wait=PATIENCE) for name in NAMES]
    finally:
        await cluster.kill_all()

    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == len(set(logs[0]))
    assert set(acknowledged) <= set(logs[0])
    assert len(acknowledged) > 3


async def test_large_logs_are_read_in_parts(cluster: Cluster) -> None:
    """Followers and clients read a log in parts; a produce that is too large raises at once."""
    records = [letter * (MAX_BYTES * 3 // 5) for letter in "abc"]
    try:
        await asyncio.gather(*map(cluster.start, NAMES))
        for record in records:
            done = await cluster.call("left", "produce", records=[record], max_wait=PATIENCE)
            assert done == "NONE"
        for name in NAMES:
            found: list[str] = []
            while len(found) < len(records):
                found += await cluster.call(name, "fetch", offset=len(found), max_wait=PATIENCE)
            assert found == records
        with pytest.raises(ValueError, match=rf"at most {MAX_BYTES} bytes, got \d{{7}}"):
            await cluster.call("leader", "produce", records=records, max_wait=PATIENCE)
        async with Client(int((cluster._folder / "leader.port").read_text())) as client:
            with pytest.raises(ValueError, match="at most"):
                await client.call("produce", records=records, max_wait=PATIENCE)
            assert await client.call("fetch", offset=2, max_wait=PATIENCE) == records[2:]
    finally:
        await cluster.kill_all()
