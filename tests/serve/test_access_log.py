"""The access log, in virtual time."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from aiowheel.serve import TopicApp

from .conftest import Serving, Subscriber, started

pytestmark = [pytest.mark.virtual_time, pytest.mark.one_build]


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log events of an application with an access log."""
    structlog.configure()
    with capture_logs() as entries:
        yield entries
    structlog.reset_defaults()


async def test_a_request_is_logged_when_it_ends(
    serving: Serving, logs: list[MutableMapping[str, Any]]
) -> None:
    """The event has duration and status, and no query."""
    async with serving(TopicApp(access_log=True)) as client:
        await client.get("/topics/a?timeout=7")
        await client.post("/topics/a", content="x", headers={"Origin": "http://evil.example"})

    poll, foreign = logs
    assert (poll.pop("event"), poll.pop("log_level")) == ("aiowheel.request", "info")
    assert poll.pop("seconds") == pytest.approx(7, abs=0.01)
    expected = {"client": "127.0.0.1", "method": "GET", "path": "/topics/a", "status": 200}
    assert poll == expected
    assert (foreign["method"], foreign["status"]) == ("POST", 403)


async def test_a_websocket_is_logged_when_it_ends(
    serving: Serving, logs: list[MutableMapping[str, Any]]
) -> None:
    """The event has the status of the handshake."""
    app = TopicApp(access_log=True)
    async with serving(app):
        async with Subscriber(app, "/topics/a") as subscriber:
            await subscriber.accepted()
            assert logs == []
            await asyncio.sleep(5)
        async with Subscriber(app, "/topics/a", "since=x") as refused:
            await refused.from_app.get()
        async with Subscriber(app, "/nope") as unknown:
            await unknown.from_app.get()

    assert [(entry["method"], entry["status"]) for entry in logs] == [
        ("WEBSOCKET", 101),
        ("WEBSOCKET", 400),
        ("WEBSOCKET", 403),
    ]
    assert logs[0]["seconds"] == pytest.approx(5, abs=0.01)


async def test_a_disconnected_client_is_logged_as_499(logs: list[MutableMapping[str, Any]]) -> None:
    """499 is nginx's status for a client that disconnects before the answer."""
    app = TopicApp(access_log=True)
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        return

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/topics/a",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("10.0.0.1", 1),
    }
    async with started(app):
        asyncio.get_running_loop().call_later(3, left.set)
        await app(scope, receive, send)
        await asyncio.sleep(0)  # the operation is removed from the purgatory

    assert [(entry["status"], entry["client"]) for entry in logs] == [(499, "10.0.0.1")]


async def test_by_default_nothing_is_logged(
    serving: Serving, logs: list[MutableMapping[str, Any]]
) -> None:
    """Neither served nor refused requests are logged."""
    async with serving() as client:
        await client.get("/topics/a?timeout=0")
        await client.get("/topics/a", headers={"Host": "evil.example"})

    assert logs == []
