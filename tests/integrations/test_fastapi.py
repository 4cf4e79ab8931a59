"""FastAPI gets the purgatory as a dependency; aiowheel does not import FastAPI."""

from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: see the dependency group `test`")

from fastapi import Depends, FastAPI, Request, Response, WebSocket

from aiowheel import Purgatory, Timer
from aiowheel.integrations.asgi import get_purgatory, get_timer, long_poll, wheel_lifespan
from aiowheel.testing import VirtualClock

from .conftest import running

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

FromLifespan = Annotated[Purgatory, Depends(get_purgatory)]


def fastapi_app() -> FastAPI:
    """An application with items, and requests that wait for an item by name."""
    app = FastAPI(lifespan=wheel_lifespan())
    items: dict[str, int] = {}

    @app.get("/items/{name}")
    async def read(request: Request, name: str, purgatory: FromLifespan) -> Response:
        return await long_poll(
            request, purgatory, keys=[name], ready=lambda: name in items and items, timeout=30
        )

    @app.put("/items/{name}")
    async def write(name: str, value: int, purgatory: FromLifespan) -> int:
        items[name] = value
        return purgatory.check_and_complete(name)

    @app.websocket("/name")
    async def tell(
        websocket: WebSocket, purgatory: FromLifespan, timer: Annotated[Timer, Depends(get_timer)]
    ) -> None:
        await websocket.accept()
        await websocket.send_json([purgatory.name, timer.time() > -1])
        await websocket.close()

    _ = read, write, tell
    return app


async def test_fastapi_gets_purgatory_and_timer_by_depends(virtual_clock: VirtualClock) -> None:
    """Other parameters of FastAPI work beside them; a poll waits until another request writes."""
    async with running(fastapi_app()) as client:
        assert (await client.get("/items/tea")).status_code == 204
        assert virtual_clock.time() == pytest.approx(30, abs=0.01)

        assert (await client.put("/items/tea?value=3")).json() == 0
        assert (await client.get("/items/tea")).json() == {"tea": 3}


async def test_fastapi_websockets_get_the_dependencies_too() -> None:
    """The dependencies accept any connection."""
    app, sent = fastapi_app(), list[Any]()
    scope: dict[str, Any] = {
        "type": "websocket",
        "path": "/name",
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.router.lifespan_context(app) as state:
        await app({**scope, "state": state}, receive, send)

    assert [message["type"] for message in sent] == [
        "websocket.accept",
        "websocket.send",
        "websocket.close",
    ]
    assert sent[1]["text"] == '["requests",true]'
