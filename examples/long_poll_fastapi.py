"""A long poll in FastAPI, on uvicorn; a disconnect is noticed at once.

Needs FastAPI and the extra `web`.

Prints:
    carla: 204 nothing new
    anna: 200 ["it rains"]
    answered: 1
"""

import asyncio
import socket
from collections import defaultdict
from typing import Annotated

import httpx
import uvicorn
from fastapi import Depends, FastAPI, Request, Response

import aiowheel
from aiowheel.integrations.asgi import get_purgatory, long_poll, wheel_lifespan

app = FastAPI(lifespan=wheel_lifespan("news", max_pending=10_000))
topics: defaultdict[str, list[str]] = defaultdict(list)
Waiting = Annotated[aiowheel.Purgatory, Depends(get_purgatory)]


@app.get("/{topic}")
async def poll(
    request: Request, topic: str, purgatory: Waiting, seen: int = 0, wait: float = 30
) -> Response:
    """Answer with the items after the first *seen* ones, or with 204."""
    return await long_poll(
        request, purgatory, keys=[topic], ready=lambda: topics[topic][seen:], timeout=wait
    )


@app.post("/{topic}")
async def publish(topic: str, item: str, purgatory: Waiting) -> int:
    """Publish an item; return the number of answered polls."""
    topics[topic].append(item)
    return purgatory.check_and_complete(topic)


async def ask(client: httpx.AsyncClient, name: str, topic: str, wait: float) -> None:
    """Poll once as one reader."""
    response = await client.get(f"/{topic}", params={"wait": wait})
    print(f"{name}: {response.status_code} {response.text or 'nothing new'}")


async def main() -> None:
    """Serve three readers: one gets an item, one times out, one disconnects."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        anna = asyncio.create_task(ask(client, "anna", "weather", 30))
        boris = asyncio.create_task(ask(client, "boris", "weather", 30))
        await ask(client, "carla", "sport", 0.3)
        boris.cancel()  # the server notices at once, and cancels his poll
        await asyncio.sleep(0.1)
        answered = (await client.post("/weather", params={"item": "it rains"})).json()
        await anna
        print("answered:", answered)
    server.should_exit = True
    await serving


asyncio.run(main())
