"""The answers of the service without a server, in virtual time."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from aiowheel._signals import handled_by
from aiowheel.serve import Limits, TopicApp
from aiowheel.testing import VirtualClock

from .conftest import Serving, started

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

JSON = {"content-type": "application/json"}


async def test_a_message_is_published_and_read(serving: Serving) -> None:
    """Text becomes a string, and JSON is unchanged."""
    async with serving() as client:
        published = await client.post("/topics/news", content="hällo")
        await client.post("/topics/news", content=b'{"a": [1]}', headers=JSON)

        answer = await client.get("/topics/news?since=0")

    assert published.status_code == 201
    assert published.json()["version"] == 1
    assert answer.headers["content-type"] == "application/json"
    assert [message["data"] for message in answer.json()["messages"]] == ["hällo", {"a": [1]}]
    assert answer.json()["epoch"] == published.json()["epoch"]


async def test_no_cache_keeps_an_answer(serving: Serving) -> None:
    """A cached answer would hide messages; `Accept` chooses between a poll and a stream."""
    async with serving() as client:
        poll = await client.get("/topics/news?timeout=0")
        others = [await client.get(path) for path in ("/live", "/health", "/metrics")]

    assert [each.headers.get("cache-control") for each in (poll, *others)] == ["no-store"] * 4
    assert poll.headers["vary"] == "Accept"


async def test_a_poll_waits_for_news(serving: Serving, virtual_clock: VirtualClock) -> None:
    """It is answered when a message is published, and not before."""
    async with serving() as client:
        poll = asyncio.create_task(client.get("/topics/news?timeout=30"))
        await asyncio.sleep(10)
        assert not poll.done()

        published = await client.post("/topics/news", content="now")
        answer = await poll

    assert published.json()["woken"] == 1
    assert answer.json()["messages"] == [{"version": 1, "data": "now"}]
    assert virtual_clock.time() == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(("query", "seconds"), [("?timeout=7.5", 7.5), ("", 30), ("?timeout=0", 0)])
async def test_a_poll_that_times_out_is_empty(
    serving: Serving, virtual_clock: VirtualClock, query: str, seconds: float
) -> None:
    """The answer has the usual form without messages, after the given timeout."""
    async with serving() as client:
        before = virtual_clock.time()
        answer = await client.get(f"/topics/news{query}")
        took = virtual_clock.time() - before

    assert answer.status_code == 200
    assert (answer.json()["version"], answer.json()["messages"]) == (0, [])
    assert took == pytest.approx(seconds, abs=0.01)


async def test_nothing_is_left_of_a_poll(serving: Serving) -> None:
    """A poll creates no topic, and leaves neither a waiter nor a counter."""
    app = TopicApp(Limits(topics=1))
    async with serving(app) as client:
        await asyncio.gather(*(client.get(f"/topics/t{n}?timeout=1") for n in range(20)))
        health = (await client.get("/health")).json()

        assert health == {"status": "ok", "topics": 0, "waiters": 0}
        assert (len(app._service.purgatory), app._service.purgatory.watched) == (0, 0)
        assert app._service.waiters.clients == 0


async def test_a_publish_answers_all_clients_that_have_seen_less(serving: Serving) -> None:
    """Clients with the new version go on waiting."""
    async with serving() as client:
        await client.post("/topics/a", content="1")
        behind = [asyncio.create_task(client.get("/topics/a?since=1")) for _ in range(50)]
        ahead = asyncio.create_task(client.get("/topics/b?timeout=2"))
        await asyncio.sleep(0.1)
        published = await client.post("/topics/a", content="2")
        answers = await asyncio.gather(*behind)

        assert published.json()["woken"] == 50
        assert {answer.text for answer in answers} == {answers[0].text}
        assert not ahead.done()
        assert (await ahead).json()["messages"] == []


async def test_a_version_from_before_a_restart_is_answered_at_once(serving: Serving) -> None:
    """Otherwise the client would wait until the new topic reaches that version."""
    async with serving() as client:
        unknown = await client.get("/topics/a?since=500")
        await client.post("/topics/a", content="1")
        ahead = await client.get("/topics/a?since=500")
        other = await client.get("/topics/a?since=1&epoch=00000000")

    assert (unknown.json()["reset"], unknown.json()["version"]) == (True, 0)
    assert (ahead.json()["reset"], len(ahead.json()["messages"])) == (True, 1)
    assert (other.json()["reset"], len(other.json()["messages"])) == (True, 1)


async def test_a_removal_answers_the_waiting_clients(serving: Serving) -> None:
    """A new topic of that name starts again at version 1."""
    async with serving() as client:
        await client.post("/topics/a", content="1")
        poll = asyncio.create_task(client.get("/topics/a?since=1"))
        await asyncio.sleep(1)

        removed = await client.delete("/topics/a")

        assert removed.status_code == 204
        assert (await poll).json()["reset"] is True
        again = await client.post("/topics/a", content="2")
        assert again.json()["version"] == 1


BAD_REQUESTS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/topics/a?since=-1", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=text", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=1.0", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=٣", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=99999999999999999999", {}, 400, "bad_since"),
    ("GET", "/topics/a?since=9007199254740992", {}, 400, "bad_since"),
    ("GET", "/topics/a?timeout=nan", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?timeout=inf", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?timeout=-1", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?timeout=1e3", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?timeout=121", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?timeout=x", {}, 400, "bad_timeout"),
    ("GET", "/topics/a?epoch=zz", {}, 400, "bad_epoch"),
    ("GET", "/topics/a?timeot=1", {}, 400, "bad_parameter"),
    ("GET", "/topics/a?since=1&since=2", {}, 400, "bad_parameter"),
    ("GET", f"/topics/{'n' * 201}", {}, 400, "bad_name"),
    ("GET", f"/topics/{'n' * 50_000}", {}, 400, "bad_name"),
    ("GET", "/topics/a%20b", {}, 400, "bad_name"),
    ("GET", "/topics/%00", {}, 400, "bad_name"),
    ("GET", "/topics/a%0A", {}, 400, "bad_name"),
    ("GET", "/topics/%22", {}, 400, "bad_name"),
    ("GET", "/topics/%2E", {}, 400, "bad_name"),
    ("GET", "/topics/%2E%2E", {}, 400, "bad_name"),
    ("GET", "/topics/", {}, 404, "not_found"),
    ("GET", "/topics/a/b", {}, 404, "not_found"),
    ("GET", "/topics/a/", {}, 404, "not_found"),
    ("GET", "/health/", {}, 404, "not_found"),
    ("POST", "/topics/a/", {"content": "x"}, 404, "not_found"),
    ("GET", "/nothing", {}, 404, "not_found"),
    ("PUT", "/topics/a", {}, 405, "method_not_allowed"),
    ("POST", "/health", {}, 405, "method_not_allowed"),
    ("DELETE", "/topics/unknown", {}, 404, "no_such_topic"),
    ("POST", "/topics/a%2Fb", {"content": "x"}, 404, "not_found"),
    ("POST", "/topics/a?since=1", {"content": "x"}, 400, "bad_parameter"),
    ("POST", "/topics/a", {"content": b"x" * 65_537}, 413, "too_large"),
    ("POST", "/topics/a", {"content": b"\xff\xfe"}, 400, "bad_text"),
    ("POST", "/topics/a", {"content": b"{", "headers": JSON}, 400, "bad_json"),
    ("POST", "/topics/a", {"content": b"", "headers": JSON}, 400, "bad_json"),
    ("POST", "/topics/a", {"content": b"[NaN]", "headers": JSON}, 400, "bad_json"),
    ("POST", "/topics/a", {"content": b"[" * 60_000, "headers": JSON}, 400, "bad_json"),
    ("POST", "/topics/a", {"content": b"9" * 9_000, "headers": JSON}, 400, "bad_json"),
    ("POST", "/topics/a", {"headers": {"content-encoding": "gzip"}}, 415, "bad_encoding"),
]


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "error"),
    BAD_REQUESTS,
    ids=[f"{method} {path[:30]} {error}" for method, path, _, _, error in BAD_REQUESTS],
)
async def test_a_bad_request_is_refused(
    serving: Serving, method: str, path: str, more: dict[str, Any], status: int, error: str
) -> None:
    """The status is below 500, the body names the error, and the topic is not created."""
    async with serving() as client:
        answer = await client.request(method, path, **more)
        health = await client.get("/health")

    assert answer.status_code == status
    assert set(answer.json()) == {"error", "detail"}
    assert answer.json()["error"] == error
    assert 0 < len(answer.json()["detail"]) < 200
    assert health.json() == {"status": "ok", "topics": 0, "waiters": 0}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"9" * 4_301, "an integer in the body must have at most 4300 digits"),
        (b"[" * 201 + b"]" * 201, "body must have at most 200 levels of arrays and objects"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "body must have at most 200 levels of"),
        (b"[-Infinity]", "-Infinity is not a JSON value"),
        (b"[1,]", "body must be JSON: "),
    ],
)
async def test_a_refused_json_is_explained(serving: Serving, body: bytes, detail: str) -> None:
    """JSON that many parsers refuse is refused with the limit, not as malformed."""
    async with serving() as client:
        answer = await client.post("/topics/a", content=body, headers=JSON)

    assert (answer.status_code, answer.json()["error"]) == (400, "bad_json")
    assert detail in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"9" * 4_300,
        b"[" * 200 + b"]" * 200,
        b'{"a":' * 199 + b"[]" + b"}" * 199,
        b"[" + b"[],{}," * 500 + b'"["]',
    ],
)
async def test_json_at_its_limits_is_published(serving: Serving, body: bytes) -> None:
    """Each client can parse the answer that has it."""
    async with serving() as client:
        await client.post("/topics/a", content=body, headers=JSON)
        page = (await client.get("/topics/a")).json()

    assert page["messages"][0]["data"] == json.loads(body)


async def test_a_refused_method_gets_the_allowed_ones(serving: Serving) -> None:
    """HTTP requires `Allow` with 405."""
    async with serving() as client:
        answer = await client.put("/topics/a")

    assert {each.strip() for each in answer.headers["allow"].split(",")} >= {
        "GET",
        "POST",
        "DELETE",
    }


async def test_text_beyond_ascii_takes_the_bytes_that_were_published(serving: Serving) -> None:
    """It is kept and sent as UTF-8, because an escape takes six bytes for each letter."""
    app, text = TopicApp(), "\u0436\U0001f600" * 100
    async with serving(app) as client:
        await client.post("/topics/a", content=text.encode())
        answer = await client.get("/topics/a")
        kept = (await app._service.store.totals()).size

    assert answer.json()["messages"][0]["data"] == text
    assert text.encode() in answer.content
    assert kept < len(text.encode()) + 250


async def test_a_text_is_one_line_of_the_answer(serving: Serving) -> None:
    """Some clients of event streams split lines as Python does."""
    text = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029z"
    async with serving() as client:
        await client.post("/topics/a", content=text.encode())
        answer = await client.get("/topics/a")

    assert answer.json()["messages"][0]["data"] == text
    assert len(answer.text.splitlines()) == 1


async def test_lone_surrogates_do_not_break_an_answer(serving: Serving) -> None:
    """JSON may contain a lone surrogate; the answer contains it unchanged."""
    async with serving() as client:
        await client.post("/topics/a", content=rb'"\ud800"', headers=JSON)
        answer = await client.get("/topics/a")

    assert rb'"\ud800"' in answer.content


async def test_the_length_of_a_body_may_begin_with_zeros(serving: Serving) -> None:
    """HTTP allows any number of digits."""
    async with serving() as client:
        answer = await client.post(
            "/topics/a", content=b"abc", headers={"content-length": f"{3:020}"}
        )

    assert answer.status_code == 201


async def test_a_chunked_body_is_bounded(serving: Serving) -> None:
    """The received bytes count, because there is no length."""

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000

    async with serving() as client:
        answer = await client.post("/topics/a", content=pieces())

    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


async def test_waiters_are_bounded(serving: Serving) -> None:
    """A request above the limit gets 503 with `Retry-After`; waiting requests continue."""
    async with serving(waiters=3) as client:
        waiting = [asyncio.create_task(client.get("/topics/a?timeout=60")) for _ in range(3)]
        await asyncio.sleep(0.1)

        refused = await client.get("/topics/a?timeout=60")
        at_once = await client.get("/topics/a?timeout=0")
        await client.post("/topics/a", content="x")

        assert (refused.status_code, refused.json()["error"]) == (503, "too_many_waiters")
        assert 1 <= int(refused.headers["retry-after"]) <= 5
        assert at_once.status_code == 200
        assert [(await each).status_code for each in waiting] == [200] * 3
        assert (await client.get("/topics/a?since=1&timeout=1")).status_code == 200


async def test_a_limit_of_waiters_may_be_any_number(serving: Serving) -> None:
    """A huge one means that there is no limit."""
    async with serving(waiters=10**30) as client:
        answer = await client.get("/topics/a?timeout=1")

    assert answer.status_code == 200


async def test_waiters_of_a_client_are_bounded(serving: Serving) -> None:
    """A client cannot use the places of all other clients."""
    app = TopicApp(Limits(waiters=10, waiters_per_client=2))
    async with serving(app) as client:
        waiting = [asyncio.create_task(client.get("/topics/a?timeout=5")) for _ in range(2)]
        await asyncio.sleep(0.1)
        other = httpx.ASGITransport(app, client=("10.0.0.9", 1))
        refused = await client.get("/topics/a?timeout=5")
        async with httpx.AsyncClient(transport=other, base_url="http://localhost") as somebody:
            served = await somebody.get("/topics/a?timeout=1")

        assert (refused.status_code, refused.json()["error"]) == (429, "too_many_waiters_of_client")
        assert "retry-after" in refused.headers
        assert served.status_code == 200
        await asyncio.gather(*waiting)


async def test_topics_are_bounded(serving: Serving) -> None:
    """A publish to one topic too many is refused."""
    async with serving(topics=5) as client:
        answers = [await client.post(f"/topics/t{n}", content="x") for n in range(20)]

    assert [answer.status_code for answer in answers] == [201] * 5 + [429] * 15
    assert answers[-1].json()["error"] == "too_many_topics"


async def test_stopping_answers_all_waiting_clients(
    serving: Serving, virtual_clock: VirtualClock
) -> None:
    """Each gets 503 with Retry-After at once; so do later requests."""
    app = TopicApp()
    async with serving(app) as client:
        polls = [asyncio.create_task(client.get("/topics/a?timeout=60")) for _ in range(20)]
        await asyncio.sleep(1)
        await app.stop()
        answers = await asyncio.gather(*polls)
        later = [
            await client.get("/topics/a"),
            await client.post("/topics/a", content="x"),
            await client.delete("/topics/a"),
            await client.get("/health"),
        ]

    assert virtual_clock.time() < 2
    for answer in (*answers, *later):
        assert (answer.status_code, answer.json()["error"]) == (503, "shutting_down")
        assert 1 <= int(answer.headers["retry-after"]) <= 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_server_answers_all_waiting_clients(
    serving: Serving, number: signal.Signals
) -> None:
    """Any server may serve the application, and would wait for a subscription forever."""
    heard: list[int] = []
    events = {"accept": "text/event-stream"}
    with handled_by(lambda number, _: heard.append(number), number):
        async with serving(TopicApp()) as client:
            poll = asyncio.create_task(client.get("/topics/a?timeout=60"))
            stream = asyncio.create_task(client.get("/topics/a", headers=events))
            await asyncio.sleep(1)
            signal.raise_signal(number)
            answers = [await poll, await stream]

    assert [answer.status_code for answer in answers] == [503, 200]
    assert heard == [number]  # the server's handler is called as well


async def test_metrics_cover_the_service_and_its_wheel(serving: Serving) -> None:
    """They have Prometheus' text format, and are read at each scrape."""
    async with serving() as client:
        await client.post("/topics/a", content="x")
        poll = asyncio.create_task(client.get("/topics/a?since=1&timeout=9"))
        await asyncio.sleep(0.1)
        metrics = await client.get("/metrics")
        await poll

    assert metrics.headers["content-type"].startswith("text/plain")
    lines = metrics.text.splitlines()
    assert "aiowheel_serve_topics 1.0" in lines
    assert "aiowheel_serve_published_total 1.0" in lines
    assert "aiowheel_serve_waiters 1.0" in lines
    assert 'aiowheel_purgatory_pending{name="topics"} 1.0' in lines
    # The timer of the poll, and those of the topic's oldest message and last use.
    assert 'aiowheel_timer_pending{name="serve"} 3.0' in lines


async def test_the_openapi_document_has_the_limits_in_force(serving: Serving) -> None:
    """Every address in the document is served."""
    async with serving(timeout=50, name_length=40) as client:
        document = (await client.get("/openapi.json")).json()

    path = document["paths"]["/topics/{name}"]
    timeout = next(each for each in path["get"]["parameters"] if each["name"] == "timeout")
    assert timeout["schema"]["maximum"] == 50
    assert path["parameters"][0]["schema"]["maxLength"] == 40
    assert json.dumps(document).count("#/components/schemas/Refusal") > 10


async def test_the_openapi_document_has_every_route() -> None:
    """Schemathesis would not test a route that is missing there."""
    app = TopicApp()
    routes = {route.path for route in app._app.routes if isinstance(route, Route)}

    async with (
        started(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        document = (await client.get("/openapi.json")).json()

    assert routes == document["paths"].keys()


async def test_there_is_no_dashboard_by_default() -> None:
    """The dashboard shows keys, so that it needs an option."""
    without, having = TopicApp(), TopicApp(dashboard=True)
    statuses: list[int] = []
    for app in (without, having):
        transport = httpx.ASGITransport(app)
        async with (
            started(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            for path in ("/dashboard/", "/dashboard"):
                answer = await client.get(path)
                statuses.append(answer.status_code)

    assert statuses == [404, 404, 200, 307]
    assert answer.headers["location"] == "dashboard/"


async def test_the_root_describes_the_service(serving: Serving) -> None:
    """It lists the other addresses."""
    async with serving() as client:
        about = (await client.get("/")).json()

        assert about["service"] == "aiowheel serve"
        for address in about["addresses"]:
            answer = await client.get(address)
            assert answer.status_code == 200, address


async def test_a_service_that_stops_is_alive_and_not_ready(serving: Serving) -> None:
    """A supervisor must not kill it, and a load balancer must send no clients."""
    app = TopicApp()
    async with serving(app) as client:
        before = [(await client.get(path)).status_code for path in ("/live", "/health")]
        await app.stop()
        after = [(await client.get(path)).status_code for path in ("/live", "/health")]

    assert (before, after) == ([200, 200], [200, 503])


@pytest.mark.parametrize(
    ("method", "call"), [("POST", "publish"), ("DELETE", "remove"), ("GET", "news")]
)
async def test_a_request_that_the_store_holds_up_during_the_stop_is_503(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, method: str, call: str
) -> None:
    """The server cancels it after some seconds; a publish may have been made."""
    app = TopicApp()
    begun = asyncio.Event()

    async def hang(*_arguments: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with serving(app) as client:
        monkeypatch.setattr(app._service.store, call, hang)
        request = asyncio.create_task(client.request(method, "/topics/a", content="1"))
        await begun.wait()
        await app.stop()
        request.cancel()
        answer = await request

    assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
    assert ("may have been carried out" in answer.json()["detail"]) == (method != "GET")
    assert "retry-after" in answer.headers


async def test_a_request_that_is_cancelled_before_the_stop_has_no_answer(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task belongs to the caller of the application."""
    app = TopicApp()

    async def hang(*_arguments: object) -> None:
        await asyncio.Event().wait()

    async with serving(app) as client:
        monkeypatch.setattr(app._service.store, "publish", hang)
        request = asyncio.create_task(client.post("/topics/a", content="1"))
        await asyncio.sleep(1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
