"""A client: many requests at once over one connection, answered in any order."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from examples.broker.frames import read_message, write_message


class Client:
    """`async with Client(port) as client: await client.call("fetch", offsets={"orders": 0})`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._writer.close()
        await self._listener

    async def call(self, name: str, /, **arguments: object) -> Any:
        """Send a request to the broker; return its answer.

        Raises:
            ConnectionError: The broker has closed the connection.
            ValueError: The arguments exceed the size of a message.
        """
        if self._listener.done():
            raise ConnectionResetError("the broker closed the connection")
        self._last_id += 1
        number = self._last_id
        write_message(self._writer, {"id": number, "call": name, "arguments": arguments})
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        return await answer

    async def _listen(self) -> None:
        try:
            while (message := await read_message(self._reader)) is not None:
                answer = self._answers.pop(message["id"])
                if not answer.done():  # done if the caller was cancelled
                    answer.set_result(message["answer"])
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the broker closed the connection"))
