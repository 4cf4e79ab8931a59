"""The broker behind a TCP port. The waiting requests of a disconnected client are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from examples.broker.broker import Broker
from examples.broker.frames import Message, read_message, write_message

Answer = Callable[[str, Message], Awaitable[Any]]


class Server:
    """A server with one task per request, so that several requests of a connection can wait.

    Args:
        answer: Called with the name and the arguments of a call.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer_call = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it disconnects."""
        waiting: set[asyncio.Task[None]] = set()
        try:
            while (request := await read_message(reader)) is not None:
                task = asyncio.create_task(self._answer(request, writer))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
        finally:
            for task in waiting:
                task.cancel()  # this also cancels the awaited operation, under all of its keys
            writer.close()

    async def _answer(self, request: Message, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer_call(request["call"], request["arguments"])
            write_message(writer, {"id": request["id"], "answer": answer})
        except Exception as error:  # for example a large answer; the client must not wait forever
            write_message(writer, {"id": request["id"], "answer": {"error": repr(error)}})
        await writer.drain()


async def answer(broker: Broker, call: str, arguments: Message) -> Any:
    """Answer one call to a broker."""
    match call:
        case "produce":
            return await broker.produce(**arguments)
        case "fetch":
            return await broker.fetch(**arguments)
        case "copy":
            return await broker.copy(**arguments)
        case "join":
            return await broker.coordinator.join(**arguments)
        case "leave":
            return broker.coordinator.leave(**arguments)
        case "heartbeat":
            return broker.coordinator.heartbeat(**arguments)
        case unknown:
            return {"error": f"there is no call {unknown!r}"}


@asynccontextmanager
async def listening(answer: Answer) -> AsyncGenerator[int, None]:
    """Serve on a free port of this machine; yield its number."""
    server = await asyncio.start_server(Server(answer).serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


@asynccontextmanager
async def serving(broker: Broker) -> AsyncGenerator[int, None]:
    """Serve a broker, and close it at the end."""
    async with listening(partial(answer, broker)) as port:
        try:
            yield port
        finally:
            await broker.aclose()
