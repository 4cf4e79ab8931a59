"""After a minute without a network to the store, waits are late and none is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Generator

import pytest

from aiowheel.shared import CounterStore, PostgresCounters, RedisCounters

from .island import Island, IslandMissingError, island
from .losses import losses
from .servers import PostgresServer, RedisServer, folder_for, missing_is_skipped

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.realtime,
    pytest.mark.shared_faults,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
]

COUNT, CUT = 10_000, 60.0  # waits; seconds


@pytest.fixture
def far() -> Generator[Island]:
    """A separate network that the test can cut off."""
    try:
        with island() as made:
            yield made
    except IslandMissingError as missing:
        pytest.skip(f"no network namespace: {missing}")


async def lost(
    far: Island, near: CounterStore, local: CounterStore, seed: int, *, reading: bool
) -> int:
    """Count the waits that a cut loses, while the publisher beside the store continues."""

    async def fault() -> None:
        await asyncio.sleep(0.1)
        await asyncio.to_thread(far.cut)
        await asyncio.sleep(CUT)
        await asyncio.to_thread(far.mend)

    return await losses(
        lambda: near, fault, count=COUNT, seed=seed, publisher=lambda: local, reading=reading
    )


READING = pytest.mark.parametrize(
    ("seed", "reading"),
    [
        *(pytest.param(seed, True, id=str(seed)) for seed in range(20)),
        pytest.param(20, False, id="without-reading"),
    ],
)


@READING
async def test_postgres(far: Island, seed: int, reading: bool) -> None:  # noqa: FBT001
    """The publisher uses the server's socket file, which the cut does not affect."""
    with missing_is_skipped(), folder_for("far-postgres") as folder:
        server = PostgresServer(folder, "-c", "listen_addresses=*", "-k", str(folder))
        with (server.cluster / "pg_hba.conf").open("a") as rules:
            rules.write("\nhost all all 10.213.0.0/16 trust\n")
        far.call(server.start)
        try:
            address = f"postgresql://postgres@{far.address}:{server.port}/postgres"
            beside = f"postgresql://postgres@/postgres?host={folder}&port={server.port}"
            near, local = PostgresCounters(address), PostgresCounters(beside)
            assert (await lost(far, near, local, seed, reading=reading) == 0) is reading
        finally:
            server.stop(signal.SIGQUIT)


@READING
async def test_redis(far: Island, seed: int, reading: bool) -> None:  # noqa: FBT001
    """The publisher uses the server's socket file here as well."""
    with missing_is_skipped(), folder_for("far-redis") as folder:
        socket = folder / "socket"
        words = ("--bind", "0.0.0.0", "--protected-mode", "no", "--unixsocket", str(socket))
        server = RedisServer(folder, *words)
        far.call(server.start)
        try:
            near = RedisCounters(f"redis://{far.address}:{server.port}")
            local = RedisCounters(f"unix://{socket}")
            assert (await lost(far, near, local, seed, reading=reading) == 0) is reading
        finally:
            server.kill()
