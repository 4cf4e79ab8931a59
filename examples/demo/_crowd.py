"""Part 1: real HTTP clients of the long-poll server.

Each client opens a connection and polls one topic; three of four topics get a message. After the
answer, some clients send further requests, and the others fall silent. The server must find the
silent ones.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiowheel.errors import AiowheelError

from ._app import LongPollApp
from ._connection import HttpConnection
from ._loop import new_loop
from ._plan import CrowdPlan
from ._screen import ShowDone
from ._server import ServerThread

_CONNECTING_AT_ONCE = 100
_PATIENCE = 30.0  # seconds beyond the plan after which the run fails


@dataclass(frozen=True)
class CrowdResult:
    """The result of part 1, as counted by the clients and by the server.

    Attributes:
        port: Port of the server.
        clients: Number of connections.
        topics: Number of polled topics.
        parked: Number of requests that waited in the purgatory at the same time.
        published: Number of topics that got a message.
        answered: Clients that got a message (status 200).
        timed_out: Clients that got an empty answer (status 204).
        completed: Operations that the server's purgatory completed.
        expired: Operations that expired in the server's purgatory.
        news_after: Seconds from the publication of a message to each answer with it, ascending.
        silent: Clients that sent no request after their answer.
        silent_found: Silent clients that the server reported as idle.
        talking: Clients that sent further requests.
        talking_found: Clients of these that the server reported as idle, because the machine
            stalled for longer than the idle timeout.
    """

    port: int
    clients: int
    topics: int
    parked: int
    published: int
    answered: int
    timed_out: int
    completed: int
    expired: int
    news_after: tuple[float, ...]
    silent: int
    silent_found: int
    talking: int
    talking_found: int


def run_crowd(plan: CrowdPlan, trace_folder: Path, progress: ShowDone) -> CrowdResult:
    """Start the server, run the clients, and stop the server.

    Args:
        plan: Sizes and times.
        trace_folder: Folder for the trace of the server's operations.
        progress: Called with (answered clients, all clients).

    Raises:
        AiowheelError: A client could not connect or failed, or the server answered too slowly.
    """
    app = LongPollApp(trace_folder, idle_timeout=plan.idle_timeout)
    with ServerThread(app.asgi) as server, asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            return runner.run(_Crowd(plan, server.port, progress).run())
        except OSError as error:
            raise AiowheelError(f"the clients could not connect: {error.strerror}") from error


class _Crowd:
    def __init__(self, plan: CrowdPlan, port: int, progress: ShowDone) -> None:
        self._plan = plan
        self._port = port
        self._progress = progress
        self._statuses: list[int] = []
        self._published: dict[int, float] = {}  # by topic, seconds of time.monotonic
        self._news_after: list[float] = []
        self._everyone_answered = asyncio.Event()
        self._may_leave = asyncio.Event()

    async def run(self) -> CrowdResult:
        plan = self._plan
        control = await HttpConnection.open(self._port)
        connections = await self._connect()
        talking = {c.address for i, c in enumerate(connections) if plan.keeps_talking(i)}
        silent = {c.address for c in connections} - talking
        try:
            async with asyncio.timeout(self._time_limit()), asyncio.TaskGroup() as visits:
                for client, connection in enumerate(connections):
                    visits.create_task(self._visit(client, connection))
                parked = await self._wait_until_parked(control)
                await self._publish(control)
                await self._everyone_answered.wait()
                idle = await self._wait_until_idle(control, silent)
                self._may_leave.set()
            counted = await _fetch(control, "/statistics")
        except TimeoutError:
            raise AiowheelError(
                f"only {len(self._statuses):,} of {len(connections):,} clients got an answer "
                f"within {self._time_limit():g} s"
            ) from None
        except ExceptionGroup as group:
            raise AiowheelError(f"a client failed: {group.exceptions[0]}") from group
        finally:
            await control.aclose()
            await asyncio.gather(*(connection.aclose() for connection in connections))
        return CrowdResult(
            port=self._port,
            clients=len(connections),
            topics=len({plan.topic_of(client) for client in range(plan.clients)}),
            parked=parked,
            published=len(self._published),
            answered=self._statuses.count(200),
            timed_out=self._statuses.count(204),
            completed=counted["completed"],
            expired=counted["expired"],
            news_after=tuple(sorted(self._news_after)),
            silent=len(silent),
            silent_found=len(silent & idle),
            talking=len(talking),
            talking_found=len(talking & idle),
        )

    def _time_limit(self) -> float:
        plan = self._plan
        return plan.poll_timeout + plan.publish_over + plan.idle_timeout + 2 * _PATIENCE

    async def _connect(self) -> list[HttpConnection]:
        gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)

        async def connect() -> HttpConnection:
            async with gate:
                return await HttpConnection.open(self._port)

        return await asyncio.gather(*(connect() for _ in range(self._plan.clients)))

    async def _visit(self, client: int, connection: HttpConnection) -> None:
        plan = self._plan
        topic = plan.topic_of(client)
        target = f"/topics/{topic}?seen=0&timeout={plan.poll_timeout}"
        response = await connection.request("GET", target)
        if response.status == 200:
            self._news_after.append(time.monotonic() - self._published[topic])
        self._statuses.append(response.status)
        self._progress(len(self._statuses), plan.clients)
        if len(self._statuses) == plan.clients:
            self._everyone_answered.set()
        while plan.keeps_talking(client) and not self._may_leave.is_set():
            await connection.request("GET", "/ping")
            await asyncio.sleep(plan.ping_every)

    async def _wait_until_parked(self, control: HttpConnection) -> int:
        """Wait until all requests are pending, or the first one is answered; return the maximum."""
        most = 0
        while most < self._plan.clients and not self._statuses:
            most = max(most, (await _fetch(control, "/statistics"))["pending"])
            await asyncio.sleep(0.05)
        return most

    async def _publish(self, control: HttpConnection) -> None:
        plan = self._plan
        wanted = {plan.topic_of(client) for client in range(plan.clients)}
        topics = sorted(topic for topic in wanted if plan.has_news(topic))
        for topic in topics:
            self._published[topic] = time.monotonic()
            await control.request("POST", f"/topics/{topic}", b"something happened")
            await asyncio.sleep(plan.publish_over / len(topics))

    async def _wait_until_idle(self, control: HttpConnection, silent: set[str]) -> set[str]:
        """Wait until the server reports all *silent* connections as idle; return all idle ones."""
        last_moment = time.monotonic() + self._plan.idle_timeout + _PATIENCE
        while True:
            idle = set(await _fetch(control, "/idle"))
            if silent <= idle or time.monotonic() > last_moment:
                return idle
            await asyncio.sleep(0.1)


async def _fetch(control: HttpConnection, target: str) -> Any:
    return json.loads((await control.request("GET", target)).body)
