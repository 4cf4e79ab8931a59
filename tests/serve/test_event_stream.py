"""Server-sent events without a server, in virtual time."""

import asyncio
import json
import re
from types import TracebackType
from typing import Any, Self

import pytest

from aiowheel.serve import Access, Limits, TopicApp
from aiowheel.testing import VirtualClock

from .conftest import Serving

pytestmark = [pytest.mark.virtual_time, pytest.mark.one_build]


class EventSource:
    """A client of an event stream that talks ASGI with the application, in place of a server."""

    def __init__(
        self,
        app: TopicApp,
        path: str,
        query: str = "",
        last: str | None = None,
        room: int = 0,
        accept: str = "text/event-stream",
    ) -> None:
        self._app = app
        headers = [(b"host", b"localhost"), (b"accept", accept.encode())]
        if last is not None:
            headers.append((b"last-event-id", last.encode()))
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},  # the versions of uvicorn
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("10.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self.to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue(room)
        self.last = last

    async def __aenter__(self) -> Self:
        send: Any = self.from_app.put
        self.task = asyncio.ensure_future(self._app(self._scope, self.to_app.get, send))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.to_app.put_nowait({"type": "http.disconnect"})
        await self.task

    async def opened(self) -> dict[str, str]:
        """Wait until the stream begins; return its headers."""
        start = await self.from_app.get()
        assert (start["type"], start["status"]) == ("http.response.start", 200)
        body = (await self.from_app.get())["body"]
        assert body.startswith(b"retry: ")
        assert 1_000 <= int(body.split()[1]) <= 5_000
        return {name.decode(): value.decode() for name, value in start["headers"]}

    async def event(self) -> Any:
        """Return the next event, or None for a comment; set `last` to its id."""
        body: bytes = (await self.from_app.get())["body"]
        if body == b":\n\n":
            return None
        first, *rest, last, end = re.split("\r\n|\r|\n", body.decode())  # as browsers do
        assert (last, end) == ("", "")
        assert first.startswith("id: ")
        self.last = first.removeprefix("id: ")
        assert all(line.startswith("data: ") for line in rest)
        return json.loads("\n".join(line.removeprefix("data: ") for line in rest))


def data(answer: Any) -> list[object]:
    """Return the data of the messages of an answer."""
    return [message["data"] for message in answer["messages"]]


async def test_a_subscriber_gets_kept_and_new_messages(serving: Serving) -> None:
    """Each answer is one event, with the JSON of a poll."""
    app = TopicApp()
    async with serving(app) as client:
        await client.post("/topics/a", content="line\nbreak")
        async with EventSource(app, "/topics/a") as source:
            headers = await source.opened()
            assert data(await source.event()) == ["line\nbreak"]
            for number in ("2", "3"):
                await client.post("/topics/a", content=number)
                assert data(await source.event()) == [number]

    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["cache-control"], headers["vary"]) == ("no-store", "Accept")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
async def test_line_breaks_in_json_do_not_end_the_event(serving: Serving, end: str) -> None:
    """JSON that was published unchanged, as a formatted file, arrives as one event."""
    app = TopicApp()
    text = end.join(["{", '"a": [', "1", "]}"])
    async with serving(app) as client, EventSource(app, "/topics/a") as source:
        await source.opened()
        kind = {"Content-Type": "application/json"}
        await client.post("/topics/a", content=text, headers=kind)

        assert data(await source.event()) == [{"a": [1]}]


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*"])
async def test_other_clients_get_a_poll(serving: Serving, accept: str) -> None:
    """Only a client whose `Accept` names event streams gets one."""
    async with serving() as client:
        answer = await client.get("/topics/a?timeout=0", headers={"Accept": accept})

    assert answer.headers["content-type"] == "application/json"


async def test_silence_is_filled_with_comments(
    serving: Serving, virtual_clock: VirtualClock
) -> None:
    """Comments keep proxies from closing the connection; an `EventSource` ignores them."""
    app = TopicApp(Limits(heartbeat=20.0))
    async with serving(app), EventSource(app, "/topics/a") as source:
        await source.opened()
        begun = virtual_clock.time()
        assert await source.event() is None
        assert await source.event() is None

    assert virtual_clock.time() - begun == pytest.approx(40, abs=0.1)


async def test_a_reconnecting_client_loses_nothing(serving: Serving) -> None:
    """`Last-Event-ID` takes precedence over the query of the address."""
    app = TopicApp()
    async with serving(app) as client:
        for number in range(3):
            await client.post("/topics/a", content=f"{number}")
        async with EventSource(app, "/topics/a", "since=1") as source:
            await source.opened()
            assert data(await source.event()) == ["1", "2"]
        for number in range(3, 6):
            await client.post("/topics/a", content=f"{number}")
        async with EventSource(app, "/topics/a", "since=1", last=source.last) as again:
            await again.opened()
            answer = await again.event()
        poll = await client.get("/topics/a", headers={"Last-Event-ID": str(source.last)})

    assert data(answer) == data(poll.json()) == ["3", "4", "5"]
    assert (answer["reset"], answer["missed"]) == (False, 0)


@pytest.mark.parametrize(
    "last", ["00000000-1", "7", "another service's", "0123456Z-1", "01234567-9999999999999999"]
)
async def test_an_id_of_another_epoch_causes_a_reset(serving: Serving, last: str) -> None:
    """The id names the epoch; the event of a removed topic has an empty id."""
    app = TopicApp()
    async with serving(app) as client:
        await client.post("/topics/a", content="1")
        async with EventSource(app, "/topics/a", last=last) as source:
            await source.opened()
            assert (await source.event())["reset"] is True
            await asyncio.sleep(1)
            await client.delete("/topics/a")
            gone = await source.event()
            assert (gone["reset"], gone["version"], source.last) == (True, 0, "")
            await client.post("/topics/a", content="2")
            assert data(await source.event()) == ["2"]


@pytest.mark.parametrize(
    ("query", "error"), [("since=-1", "bad_since"), ("timeout=3", "bad_parameter")]
)
async def test_a_bad_request_is_refused(serving: Serving, query: str, error: str) -> None:
    """The refusal is the same as for a poll, and the stream does not begin."""
    app = TopicApp()
    async with serving(app), EventSource(app, "/topics/a", query) as source:
        start = await source.from_app.get()
        body = await source.from_app.get()

    assert start["status"] == 400
    assert json.loads(body["body"])["error"] == error


async def test_subscribers_count_as_waiting_clients(serving: Serving) -> None:
    """They share the limit of polls, until they disconnect."""
    app = TopicApp(Limits(waiters=1))
    async with serving(app) as client:
        async with EventSource(app, "/topics/a") as source:
            await source.opened()
            async with EventSource(app, "/topics/a") as second:
                assert (await second.from_app.get())["status"] == 503
            assert (await client.get("/topics/a?timeout=1")).status_code == 503
        await asyncio.sleep(0)

        assert (await client.get("/health")).json()["waiters"] == 0
        assert len(app._service.purgatory) == 0


async def test_a_token_is_needed_for_a_stream(serving: Serving) -> None:
    """The refusal is the same as for a poll."""
    app = TopicApp(access=Access(subscribe_tokens=frozenset({"x" * 16})))
    async with serving(app), EventSource(app, "/topics/a") as source:
        assert (await source.from_app.get())["status"] == 401


async def test_stopping_ends_every_stream(serving: Serving) -> None:
    """Each stream ends in order, so that an `EventSource` reconnects."""
    app = TopicApp()
    async with serving(app), EventSource(app, "/topics/a") as source:
        await source.opened()
        await asyncio.sleep(1)
        await app.stop()
        last = await source.from_app.get()

    assert (last["body"], last["more_body"]) == (b"", False)


async def test_a_slow_subscriber_gets_everything_in_pages(serving: Serving) -> None:
    """A page has at most 64 KiB, or one larger message; later pages are read only when needed."""
    app = TopicApp()
    big = "x" * 60_000
    async with serving(app) as client:
        await client.post("/topics/a", content="0")
        async with EventSource(app, "/topics/a", room=1) as source:
            await source.opened()
            for _ in range(4):
                await client.post("/topics/a", content=big)
            for number in range(100):
                await client.post("/topics/a", content=f"{number}")
            pages: list[Any] = []
            while not pages or pages[-1]["version"] < 105:
                pages.append(await source.event())

    messages = [message for page in pages for message in page["messages"]]
    assert [message["version"] for message in messages] == list(range(1, 106))
    assert [page["missed"] for page in pages] == [0] * len(pages)
    assert max(len(page["messages"]) for page in pages) > 50  # a page holds many small messages
    assert sum(big in data(page) for page in pages) == 4  # a page holds one large message
