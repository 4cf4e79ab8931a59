"""The client of topics over a failing network, in virtual time, and with a real service."""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, closing, suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from uvicorn import Config

from aiowheel.client import Message, TopicClient, TopicRefusedError
from aiowheel.client._client import _MOST_DELAY
from aiowheel.serve import Access, Limits, TopicApp
from aiowheel.testing import VirtualClock

from .conftest import process, started, waiters_reach

pytestmark = pytest.mark.one_build
virtual = pytest.mark.virtual_time

URL = "http://localhost"
COUNT = 60


class BadNetwork(httpx.AsyncBaseTransport):
    """A transport that loses requests and answers, and fails for whole minutes, at random."""

    def __init__(self, app: TopicApp, seed: int, share: float) -> None:
        self.app = app
        self._random = random.Random(seed)
        self._share = share
        self.lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on, or fail before or after the service handles it."""
        before, after, refused = (self._random.random() < self._share for _ in range(3))
        polling = request.method == "GET"
        if polling and refused:
            return httpx.Response(503, headers={"Retry-After": "2"}, text="a proxy's words")
        if polling and before:
            self.lost += 1
            raise httpx.ConnectError("refused")
        answer = await httpx.ASGITransport(self.app).handle_async_request(request)
        if polling and after:
            self.lost += 1
            raise httpx.ReadError("reset")
        return answer


async def taken(client: TopicClient, topic: str, count: int, **more: Any) -> list[Message]:
    """Return the first *count* messages of a subscription."""
    got: list[Message] = []
    async with aclosing(client.subscribe(topic, **more)) as messages:
        async for message in messages:
            got.append(message)
            if len(got) == count:
                break
    return got


MESSAGE: dict[str, object] = {"version": 1, "data": 1}


def page(version: int, *messages: dict[str, object], missed: int = 0) -> dict[str, object]:
    """Return the body of an answer to a poll."""
    return {
        "epoch": "00000000",
        "version": version,
        "messages": messages,
        "missed": missed,
        "reset": False,
    }


@pytest.mark.parametrize("seed", range(20))
@virtual
async def test_nothing_is_lost_on_a_bad_network(seed: int) -> None:
    """Half of the polls fail; each message still arrives exactly once and in order."""
    network = BadNetwork(TopicApp(), seed, share=0.25)
    pause = random.Random(seed)
    async with started(network.app), httpx.AsyncClient(transport=network) as http:
        client = TopicClient(URL, http=http)
        reading = asyncio.create_task(taken(client, "a", COUNT))
        for number in range(COUNT):
            published = await client.publish("a", {"number": number})
            assert published.version == number + 1
            await asyncio.sleep(pause.expovariate(1))
        got = await reading

    assert [message.data["number"] for message in got] == list(range(COUNT))
    assert [message.version for message in got] == list(range(1, COUNT + 1))
    assert not any(message.missed or message.reset for message in got)
    assert network.lost > 5


@virtual
async def test_a_subscription_goes_on_after_a_position() -> None:
    """The position may come from another process."""
    app = TopicApp()
    async with started(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        client = TopicClient(URL, http=http)
        for number in range(6):
            await client.publish("a", number)
        first = await taken(client, "a", 3)
        rest = await taken(client, "a", 3, after=first[-1].position)

    assert [message.data for message in first + rest] == list(range(6))


@virtual
async def test_dropped_messages_are_counted() -> None:
    """The next message has the count in `missed`; later messages have 0."""
    app = TopicApp(Limits(kept_messages=2))
    async with started(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        client = TopicClient(URL, http=http)
        for number in range(10):
            await client.publish("a", number)
        got = await taken(client, "a", 2)

    assert [(message.data, message.missed) for message in got] == [(8, 8), (9, 0)]


@virtual
async def test_dropped_messages_of_answers_without_a_message_are_counted() -> None:
    """All messages of a topic may have grown old."""
    answers = [page(3, missed=3), page(5, missed=2), page(7, {"version": 7, "data": 7}, missed=1)]

    def handle(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=answers.pop(0))

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        got = await taken(TopicClient(URL, http=http), "a", 1)

    assert [(message.data, message.missed) for message in got] == [(7, 6)]


@virtual
async def test_a_restart_is_shown_and_survived() -> None:
    """After a loss of all topics, the next message has `reset`; no new message is lost."""
    network = BadNetwork(TopicApp(), 1, share=0.0)
    async with httpx.AsyncClient(transport=network) as http:
        client = TopicClient(URL, http=http)
        async with aclosing(client.subscribe("a")) as messages:
            async with started(network.app):
                await client.publish("a", "before")
                first = await anext(messages)
            network.app = TopicApp()
            async with started(network.app):
                await client.publish("a", "after")
                await client.publish("a", "and on")
                second, third = await anext(messages), await anext(messages)

    assert [first.data, second.data, third.data] == ["before", "after", "and on"]
    assert [first.reset, second.reset, third.reset] == [False, True, False]


@virtual
async def test_a_removed_topic_begins_anew() -> None:
    """The first message of the new epoch has `reset`, even after a long time."""
    app = TopicApp()
    async with started(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        client = TopicClient(URL, http=http)
        await client.publish("a", 1)
        reading = asyncio.create_task(taken(client, "a", 2))
        await asyncio.sleep(1)
        removed = await client.remove("a"), await client.remove("a")
        await asyncio.sleep(200)
        await client.publish("a", 2)
        got = await reading

    assert removed == (True, False)
    assert [(message.data, message.version, message.reset) for message in got] == [
        (1, 1, False),
        (2, 1, True),
    ]


@virtual
async def test_an_outage_is_waited_for(virtual_clock: VirtualClock) -> None:
    """The client retries every few seconds for any time, and continues after the outage."""
    network = BadNetwork(TopicApp(), 1, share=1.0)
    async with started(network.app), httpx.AsyncClient(transport=network) as http:
        network._random = random.Random(0)
        client = TopicClient(URL, http=http)
        reading = asyncio.create_task(taken(client, "a", 1))
        await asyncio.sleep(600)
        await client.publish("a", 1)
        network._share = 0.0
        begun = virtual_clock.time()
        await reading

    assert virtual_clock.time() - begun <= _MOST_DELAY


@virtual
async def test_the_first_failure_of_a_series_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A series ends with an answer of the service."""
    down = [httpx.Response(503)] * 3
    answers = [*down, httpx.Response(200, json=page(0)), *down, httpx.Response(403)]

    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answers.pop(0))) as http:
        with pytest.raises(TopicRefusedError, match="403"):
            await anext(TopicClient(URL, http=http).subscribe("a"))

    assert caplog.text.count("aiowheel.topic_unreachable topic='a' reason=") == 2


@virtual
async def test_an_answer_that_asks_for_no_pause_gets_one(virtual_clock: VirtualClock) -> None:
    """A proxy with `Retry-After: 0` gets a request every few seconds, not thousands."""
    times: list[float] = []

    def handle(_request: httpx.Request) -> httpx.Response:
        times.append(virtual_clock.time())
        return httpx.Response(503 if len(times) < 20 else 403, headers={"Retry-After": "0"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        with pytest.raises(TopicRefusedError, match="403"):
            await anext(TopicClient(URL, http=http).subscribe("a"))

    assert times[-1] - times[0] > 20


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@virtual
async def test_a_temporary_refusal_does_not_end_a_subscription(status: int) -> None:
    """The service answers 408 if the network has delayed the request."""
    app = TopicApp()
    network = httpx.ASGITransport(app)
    refusals = 2

    async def answered(request: httpx.Request) -> httpx.Response:
        nonlocal refusals
        if request.method == "GET" and refusals:
            refusals -= 1
            return httpx.Response(status)
        return await network.handle_async_request(request)

    async with started(app), httpx.AsyncClient(transport=httpx.MockTransport(answered)) as http:
        client = TopicClient(URL, http=http)
        await client.publish("a", 1)
        got = await taken(client, "a", 1)

    assert [message.data for message in got] == [1]


class Cut(httpx.AsyncByteStream):
    """A body that is no gzip."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"no gzip"


@virtual
async def test_an_answer_that_was_damaged_on_its_way_is_requested_again() -> None:
    """For example a compressed body that a proxy cuts off."""
    damaged = httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Cut())
    answers = [damaged, httpx.Response(403)]

    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answers.pop(0))) as http:
        with pytest.raises(TopicRefusedError, match="403"):
            await anext(TopicClient(URL, http=http).subscribe("a"))


@virtual
async def test_a_refusal_is_raised() -> None:
    """The client does not repeat the request; the error has status, word and detail."""
    app = TopicApp(access=Access(publish_tokens=frozenset({"x" * 16})))
    async with started(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        stranger = TopicClient(URL, http=http)
        with pytest.raises(TopicRefusedError, match="401 no_token: publishing needs") as refused:
            await stranger.publish("a", 1)
        with pytest.raises(TopicRefusedError, match="401"):
            await stranger.remove("a")
        with pytest.raises(TopicRefusedError, match="400 bad_name"):
            await anext(stranger.subscribe("a" * 300))
        friend = TopicClient(f"{URL}/", token="x" * 16, http=http)
        assert (await friend.publish("a", None)).version == 1
        assert (await taken(stranger, "a", 1))[0].data is None

    assert (refused.value.status, refused.value.error) == (401, "no_token")


@virtual
@pytest.mark.parametrize(
    "text",
    [
        "<html>",
        "",
        "[1]",
        "null",
        '{"version": 1}',
        "[" * 100_000,
        '{"epoch": 1, "version": "1", "missed": 0, "reset": false, "messages": []}',
        json.dumps(page(1, {"data": 1})),
        json.dumps(page(1) | {"epoch": "\ud800"}),
        json.dumps(page(1, missed=-1)),
        json.dumps(page(1, MESSAGE, MESSAGE)),  # one message twice
        json.dumps(page(0, MESSAGE)),  # a message from later than the page
    ],
)
async def test_the_answer_of_another_program_is_a_refusal(text: str) -> None:
    """For example that of a web server that has a page for every address."""

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(201 if request.method == "POST" else 200, text=text)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        client = TopicClient(URL, http=http)
        with pytest.raises(TopicRefusedError, match="200 not_json"):
            await anext(client.subscribe("a"))
        with pytest.raises(TopicRefusedError, match="201 not_json"):
            await client.publish("a", 1)


@virtual
@pytest.mark.parametrize("charset", ["zlib", "base64", "idna", "undefined"])
async def test_the_charset_of_an_answer_may_be_no_charset(charset: str) -> None:
    """Python has codecs of these names, which are none for text, or know no replacement."""
    kind = {"content-type": f"text/html; charset={charset}"}
    answers = iter([httpx.Response(503, headers=kind, content=b"\xff<html>")])

    def handle(_: httpx.Request) -> httpx.Response:
        return next(answers, httpx.Response(400, headers=kind, content=b"\xff<html>"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        client = TopicClient(URL, http=http)
        with pytest.raises(TopicRefusedError, match="400 not_json: �<html>"):
            await anext(client.subscribe("a"))


@virtual
async def test_a_long_answer_of_another_program_is_cut_between_characters() -> None:
    """The text of the error ends with a whole character."""

    def handle(_: httpx.Request) -> httpx.Response:
        return httpx.Response(400, text="a" + "é" * 300)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        client = TopicClient(URL, http=http)
        with pytest.raises(TopicRefusedError, match=r"400 not_json: aé{199}$"):
            await client.publish("a", 1)


@virtual
async def test_an_answer_that_is_repeated_is_a_refusal() -> None:
    """A proxy may keep an answer; its message is not yielded a second time."""
    kept = httpx.MockTransport(lambda _: httpx.Response(200, json=page(1, MESSAGE)))
    async with httpx.AsyncClient(transport=kept) as http:
        messages = TopicClient(URL, http=http).subscribe("a")
        assert (await anext(messages)).data == 1
        with pytest.raises(TopicRefusedError, match="200"):
            await anext(messages)


@virtual
async def test_answers_without_a_message_get_a_pause(virtual_clock: VirtualClock) -> None:
    """A proxy that answers at once gets ten requests a second, not thousands."""
    answers = [httpx.Response(200, json=page(0)) for _ in range(100)] + [httpx.Response(403)]
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answers.pop(0))) as http:
        with pytest.raises(TopicRefusedError, match="403"):
            await anext(TopicClient(URL, http=http).subscribe("a"))

    assert virtual_clock.time() == pytest.approx(10)


@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "ftp://a",
        "http://",
        "http://:80",
        "http://a:port",
        "http://a:99999",
        "http://a?b",
        "http:// a",
    ],
)
def test_an_address_that_no_service_can_have_is_refused(url: str) -> None:
    """A subscription would repeat some of these requests for ever."""
    with pytest.raises(ValueError, match="url must be http://HOST:PORT or https://HOST:PORT, got"):
        TopicClient(url)


def test_the_error_of_an_address_does_not_show_its_password() -> None:
    """The error may be logged."""
    with pytest.raises(ValueError, match=r"got https://\.\.\.$"):
        TopicClient("https://user:hidden@host/?x=1")


@pytest.mark.parametrize("token", ["", "x" * 16 + "\n", "two words", "\u00e9" * 16])
def test_a_token_that_no_request_can_carry_is_refused(token: str) -> None:
    """The text of the error does not show the token."""
    with pytest.raises(ValueError, match="token must consist of visible ASCII characters, got oth"):
        TopicClient(URL, token=token)


@virtual
async def test_data_that_is_nested_too_deeply_is_refused() -> None:
    """The error is that of other data which JSON cannot represent."""
    data: list[Any] = []
    for _ in range(100_000):
        data = [data]
    async with TopicClient(URL) as client:
        with pytest.raises(ValueError, match="data must have at most 200 levels"):
            await client.publish("a", data)


async def test_bad_arguments_are_refused_at_the_call() -> None:
    """A bad topic name or position raises before any request."""
    async with TopicClient(URL) as client:
        for topic in ("a/b", "a?since=1", "", ".", ".."):
            with pytest.raises(ValueError, match="topic must consist of"):
                client.subscribe(topic)
            with pytest.raises(ValueError, match="topic must consist of"):
                await client.publish(topic, 1)
        with pytest.raises(ValueError, match="after must be the position of a message, got '7'"):
            client.subscribe("a", after="7")
        with pytest.raises(ValueError, match="JSON compliant"):
            await client.publish("a", float("nan"))
        wrong: Any = 5
        with pytest.raises(TypeError, match="topic must be a str, got 5"):
            client.subscribe(wrong)
        with pytest.raises(TypeError, match="after must be a str, got 5"):
            client.subscribe("a", after=wrong)


@virtual
async def test_a_cancelled_subscription_leaves_nothing() -> None:
    """Neither a waiting request nor a connection remains."""
    app = TopicApp()
    async with started(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        reading = asyncio.create_task(taken(TopicClient(URL, http=http), "a", 1))
        await asyncio.sleep(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.sleep(0)

        assert len(app._service.waiters) == 0
        assert len(app._service.purgatory) == 0


@pytest.mark.realtime
async def test_an_idle_connection_is_closed_before_the_service_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a publish is lost that is on its way when the service closes its connection."""
    connections = 0
    receipt = b'{"epoch": "00000000", "version": 1, "woken": 0}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n1")
                head = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(receipt)
                writer.write(head + receipt)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with TopicClient(f"http://127.0.0.1:{port}") as client:
            await client.publish("a", 1)
            await client.publish("a", 1)
            assert connections == 1
            idle = Config(TopicApp()).timeout_keep_alive - 1
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + idle)
            monkeypatch.setattr("httpcore._async.http11.time", later)
            await client.publish("a", 1)

    assert connections == 2


@pytest.mark.realtime
async def test_a_subscription_survives_a_restart_of_the_service() -> None:
    """The service is killed during a poll over real sockets; the subscription continues."""
    token = "x" * 16
    environment = os.environ | {"AIOWHEEL_TOKEN": token}
    with process(environment=environment) as first:
        async with (
            TopicClient(first.url, token=token) as client,
            aclosing(client.subscribe("a")) as messages,
        ):
            await client.publish("a", 1)
            before = await anext(messages)
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.1)
            first.process.kill()
            await asyncio.to_thread(first.process.wait, 60)
            with process("--port", str(first.port), environment=environment):
                await client.publish("a", 2)
                after = await waiting

    assert (before.data, before.reset) == (1, False)
    assert (after.data, after.version, after.reset) == (2, 1, True)


@pytest.mark.realtime
async def test_many_subscriptions_leave_a_connection_for_a_publish() -> None:
    """Each of them holds a connection while it waits."""
    with process() as service:
        async with TopicClient(service.url) as client, asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(taken(client, f"t{each}", 1)) for each in range(120)]
            await waiters_reach(service, 120)
            for each in range(120):
                await client.publish(f"t{each}", each)

    assert [[message.data for message in each.result()] for each in waiting] == [
        [each] for each in range(120)
    ]
