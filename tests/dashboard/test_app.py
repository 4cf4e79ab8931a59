"""The addresses of the dashboard and its guard, without a server."""

import asyncio
import gc
import json
import re
import signal
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

import aiowheel.dashboard
from aiowheel import ManualTimer, Purgatory
from aiowheel.dashboard import Dashboard, Guard, this_machine_only
from aiowheel.dashboard._guard import Scope
from aiowheel.dashboard._viewers import SECONDS

from .conftest import Unmet

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

MOST_BYTES = 60_000


def scope(
    path: str, *, host: str = "127.0.0.1", method: str = "GET", query: str = "", **headers: str
) -> dict[str, Any]:
    """Return the ASGI scope of a request under the mount point /wheels."""
    raw = {"host": "localhost:8000", **headers}
    return {
        "type": "http",
        "method": method,
        "path": f"/wheels{path}",
        "root_path": "/wheels",
        "query_string": query.encode(),
        "client": (host, 1),
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in raw.items()
        ],
    }


class Exchange:
    """One request and its response."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()

    async def receive(self) -> Any:
        """Wait until the client disconnects."""
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Store the message."""
        self.sent.append(message)

    @property
    def status(self) -> int:
        """Status of the response."""
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """The body received so far."""
        return b"".join(message["body"] for message in self.sent[1:])


async def asked(dashboard: Dashboard, request: Scope) -> Exchange:
    """Return the finished exchange of *request*."""
    exchange = Exchange()
    await dashboard(request, exchange.receive, exchange.send)
    return exchange


class Room:
    """A key that can be referenced weakly."""

    def __repr__(self) -> str:
        return "room"


async def test_an_answer_without_a_viewer_keeps_no_key_alive() -> None:
    """Nobody asks again without the page, and the keys are objects of the application."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    dashboard = Dashboard(timer, [purgatory])

    async def ask() -> weakref.ref[Room]:
        room, operation = Room(), Unmet(9)
        purgatory.try_complete_else_watch(operation, [room])
        for path in ("/keys", "/operations"):
            found = await asked(dashboard, scope(path, query="purgatory=p&text=room"))
            assert b"room" in found.body
        operation.cancel()
        return weakref.ref(room)

    room = await ask()
    gc.collect()

    assert room() is None


def made(guard: Guard | None = None) -> Dashboard:
    """Return a dashboard of an idle timer."""
    timer = ManualTimer()
    return Dashboard(timer, [Purgatory("p", timer=timer)], guard=guard)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"timer": 3}, "timer must be a Timer, got 3"),
        ({"purgatories": [3]}, "purgatories must be a sequence of purgatories, got [3]"),
        ({"purgatories": Purgatory(timer=ManualTimer())}, "got <Purgatory 'purgatory' pending=0>"),
        ({"durable": [3]}, "durable must be a mapping of names to DurableTimers, got [3]"),
        ({"durable": {"a": 3}}, "durable must be a mapping of names to DurableTimers, got {'a'"),
        ({"guard": 3}, "guard must be a function or None, got 3"),
        ({"folder": 3}, "folder must be a path or None, got 3"),
        ({"example": 3}, "example must be a str, got 3"),
    ],
)
def test_a_wrong_argument_is_named_at_the_call(arguments: dict[str, Any], text: str) -> None:
    """It would fail at the first request otherwise."""
    values: dict[str, Any] = {"timer": ManualTimer(), **arguments}
    with pytest.raises(TypeError, match=re.escape(text)):
        Dashboard(**values)


async def test_all_files_of_the_page_are_served() -> None:
    """The page loads no file of another origin; together the files have less than 60 kB."""
    dashboard = made()
    total = 0
    todo, done = ["/"], set[str]()
    while todo:
        path = todo.pop()
        done.add(path)
        answer = await asked(dashboard, scope(path))
        assert answer.status == 200, path
        assert int(answer.headers["content-length"]) == len(answer.body)
        total += len(answer.body)
        text = answer.body.decode()
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        named = re.findall(r"""["'](?:\./)?([a-z]+\.(?:js|css|svg))["']""", text)
        todo += {f"/{name}" for name in named} - done - set(todo)

    names = {each.name for each in Path(aiowheel.dashboard.__file__).with_name("page").iterdir()}
    assert done == {"/", *(f"/{name}" for name in names - {"index.html"})}
    assert total < MOST_BYTES


async def test_scripts_of_other_origins_are_forbidden() -> None:
    """The Content-Security-Policy allows only the page's own origin."""
    answer = await asked(made(), scope("/"))

    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (scope(""), 307),
        (scope("/nothing"), 404),
        (scope("/../_app.py"), 404),
        (scope("/", method="POST"), 405),
        (scope("/", method="HEAD"), 200),
    ],
    ids=["no slash", "unknown", "outside", "POST", "HEAD"],
)
async def test_other_paths_and_methods_are_refused(request_: Scope, status: int) -> None:
    """Only the files of the page exist, and only GET and HEAD are allowed."""
    assert (await asked(made(), request_)).status == status


@pytest.mark.parametrize(
    ("path", "requested", "status", "location"),
    [
        ("/", b"/wheels", 307, "./wheels/"),
        ("/", b"/wheels?a=1", 307, "./wheels/"),
        ("/", b"/wheels/", 200, None),
        ("/", b"/wheels/?a=1", 200, None),
        ("/page.js/", b"/wheels/page.js", 200, None),
        ("/nothing/", b"/wheels/nothing", 404, None),
        ("//", b"/wheels//", 404, None),  # the page would not find its files
    ],
)
async def test_litestar_may_mount_the_page(
    path: str, requested: bytes, status: int, location: str | None
) -> None:
    """It removes the mount point from the path, and lets each path end with a slash."""
    request = scope("") | {"path": path, "raw_path": requested, "root_path": ""}

    answer = await asked(made(), request)

    assert (answer.status, answer.headers.get("location")) == (status, location)


async def test_a_missing_slash_is_added_by_a_relative_redirect() -> None:
    """It is relative because a proxy may serve the page under another path."""
    answer = await asked(made(), scope(""))

    assert answer.headers["location"] == "./wheels/"


@pytest.mark.parametrize(
    ("path", "sent", "target"),
    [
        ("/wheels:live", b"/wheels:live", "/wheels:live/"),
        ("/wheels:live", None, "/wheels%3Alive/"),
        ("/räder", b"/r%C3%A4der", "/r%C3%A4der/"),
        ("/räder", None, "/r%C3%A4der/"),
        ("/wheels?", b"/wheels%3F?a=1", "/wheels%3F/"),
        ("/wheels?", None, "/wheels%3F/"),
        ("/wheels\r\n", None, "/wheels%0D%0A/"),
    ],
)
async def test_the_redirect_of_a_mount_with_other_characters(
    path: str, sent: bytes | None, target: str
) -> None:
    """It has no scheme, query or line break of its own; a server may pass no `raw_path`."""
    request = scope("") | {"path": path, "raw_path": sent, "root_path": path}

    answer = await asked(made(), request)

    assert urljoin("http://localhost/", answer.headers["location"]) == f"http://localhost{target}"


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (scope("/"), True),
        (scope("/", host="::1"), True),
        (scope("/", host="127.8.9.10"), True),
        (scope("/", host="::ffff:127.0.0.1"), True),
        (scope("/", host="::ffff:192.168.0.7"), False),
        (scope("/", host="192.168.0.7"), False),
        (scope("/", host="not an address"), False),
        (scope("/", x_forwarded_for="192.168.0.7"), False),
        (scope("/") | {"client": None}, False),
        (scope("/") | {"headers": [(b"host", b"[::1]:80")]}, True),
        (scope("/") | {"headers": [(b"host", b"127.0.0.1")]}, True),
        (scope("/") | {"headers": [(b"host", b"evil.example:8000")]}, False),
        (scope("/") | {"headers": [(b"host", b"localhost.evil.example")]}, False),
        (scope("/", sec_fetch_site="none", sec_fetch_dest="document"), True),
        (scope("/", sec_fetch_site="same-origin", sec_fetch_dest="empty"), True),
        (scope("/", sec_fetch_site="cross-site", sec_fetch_dest="document"), True),
        (scope("/", sec_fetch_site="cross-site", sec_fetch_dest="empty"), False),
        (scope("/", sec_fetch_site="same-site", sec_fetch_dest="iframe"), False),
        (scope("/", sec_fetch_site="cross-site"), False),
        (scope("/", origin="http://localhost:8000"), True),
        (scope("/", origin="https://LOCALHOST:8000"), True),
        (scope("/", origin="https://evil.example"), False),
        (scope("/", origin="http://localhost:9000"), False),
        (scope("/", origin="http://localhost:8000.evil.example"), False),
        (scope("/", origin="null"), False),
        (scope("/") | {"headers": [(b"origin", b"http://localhost:8000")]}, False),
    ],
)
async def test_the_default_guard_allows_only_this_machine(request_: Scope, allowed: bool) -> None:  # noqa: FBT001 - a parameter
    """Forwarded requests, rebound host names and pages of other origins are refused."""
    assert this_machine_only(request_) is allowed
    assert (await asked(made(), request_)).status == (200 if allowed else 403)


async def test_a_custom_guard_decides_for_every_address() -> None:
    """It may be a plain or a coroutine function."""

    async def by_token(request: Scope) -> bool:
        await asyncio.sleep(0)
        return (b"x-token", b"secret") in request["headers"]

    for path in ("/", "/page.js", "/events", "/keys", "/operations"):
        assert (await asked(made(by_token), scope(path))).status == 403
    everybody = made(lambda _: True)
    assert (await asked(everybody, scope("/", host="192.168.0.7"))).status == 200
    assert (await asked(made(by_token), scope("/", x_token="secret"))).status == 200


async def test_snapshots_are_streamed_until_the_viewer_disconnects() -> None:
    """Afterwards no snapshots are taken."""
    dashboard = made()
    exchange = Exchange()
    stream = asyncio.create_task(dashboard(scope("/events"), exchange.receive, exchange.send))
    await asyncio.sleep(3.5 * SECONDS)

    assert exchange.headers["content-type"] == "text/event-stream"
    assert exchange.body.startswith(b"retry: ")
    assert exchange.body.count(b"event: history\ndata: {") == 1
    assert exchange.body.count(b"\n\ndata: {") == 4
    assert exchange.body.endswith(b"\n\n")

    exchange.left.set()
    await stream
    await asyncio.sleep(SECONDS)
    assert dashboard._viewers == {}


async def test_a_head_of_the_stream_is_answered_at_once() -> None:
    """HEAD has no body, so that the response must end."""
    answer = await asked(made(), scope("/events", method="HEAD"))

    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.sent[1:] == [{"type": "http.response.body", "body": b"", "more_body": False}]


async def test_a_closed_dashboard_ends_its_streams() -> None:
    """The responses are complete, so that a stopping server need not wait."""
    dashboard = made()
    exchange = Exchange()
    stream = asyncio.create_task(dashboard(scope("/events"), exchange.receive, exchange.send))
    await asyncio.sleep(1)
    dashboard.close()
    await stream

    assert exchange.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_stream_that_begins_while_the_dashboard_closes_ends() -> None:
    """It ends without a snapshot, for example if the client reads slowly."""
    dashboard = made()
    exchange = Exchange()

    async def send(message: Any) -> None:
        await exchange.send(message)
        if b"event: history" in message.get("body", b""):
            dashboard.close()

    async with asyncio.timeout(60):
        await dashboard(scope("/events"), exchange.receive, send)
    assert exchange.sent[-1]["more_body"] is False
    assert b'data: {"process"' not in exchange.body


async def test_a_signal_ends_the_streams() -> None:
    """The handler of the server is called too, and the server need not wait for the streams."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        dashboard = made()
        exchange = Exchange()
        stream = asyncio.create_task(dashboard(scope("/events"), exchange.receive, exchange.send))
        await asyncio.sleep(1)
        signal.raise_signal(signal.SIGTERM)
        await stream
    finally:
        signal.signal(signal.SIGTERM, before)

    assert heard == [signal.SIGTERM]
    assert exchange.sent[-1]["more_body"] is False


async def test_a_reload_starts_with_the_last_minutes() -> None:
    """The history is kept without viewers, and is sent before the first snapshot."""
    timer = ManualTimer()
    dashboard = Dashboard(timer, [], example="curl {origin}")
    timer.call_later(0.1, int)
    await asyncio.sleep(2)
    timer.advance(1)
    await asyncio.sleep(600)
    timer.call_later(0.1, int)
    timer.advance(1)
    await asyncio.sleep(200)
    exchange = Exchange()
    stream = asyncio.create_task(dashboard(scope("/events"), exchange.receive, exchange.send))
    await asyncio.sleep(0.1)
    dashboard.close()
    await stream

    _, kind, data = exchange.body.split(b"\n\n")[1].partition(b"event: history\ndata: ")
    assert kind
    first = json.loads(data)
    assert first["example"] == "curl {origin}"
    seconds = [point["second"] for point in first["points"]]
    assert len(seconds) == 300
    assert seconds == list(range(seconds[0], seconds[0] + 300))
    assert sum(point["fired"] for point in first["points"]) == 1


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/keys", "purgatory=p&text=ne", 200),
        ("/keys", "purgatory=p&text=", 200),
        ("/keys", "purgatory=p", 400),
        ("/operations", "text=news", 400),
        ("/operations", "purgatory=p&text=news", 200),
        ("/operations", "purgatory=q&text=news", 404),
    ],
)
async def test_questions_about_keys(path: str, query: str, status: int) -> None:
    """Purgatory and text are parameters of the query; the answer is JSON."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    waiting = purgatory.wait_until({"news": 1}, 9)

    answer = await asked(Dashboard(timer, [purgatory]), scope(path, query=query))

    assert answer.status == status
    if status == 200:
        assert "news" in answer.body.decode()
        assert answer.headers["content-type"] == "application/json"
    waiting.cancel()


async def test_a_closed_dashboard_drops_the_keys_of_its_answers() -> None:
    """Keys are objects of the application."""

    class Key:
        """A key that can be referenced weakly."""

        def __repr__(self) -> str:
            return "key"

    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    dashboard = Dashboard(timer, [purgatory])
    key, operation = Key(), Unmet(9)
    purgatory.try_complete_else_watch(operation, [key])
    answer = await asked(dashboard, scope("/operations", query="purgatory=p&text=key"))
    assert json.loads(answer.body)["waiters"] == 1

    operation.cancel()
    gone = weakref.ref(key)
    del key, operation
    dashboard.close()
    gc.collect()

    assert gone() is None


async def test_viewers_above_the_limit_are_refused() -> None:
    """Each viewer holds a connection."""
    dashboard = made()
    exchanges = [Exchange() for _ in range(21)]
    streams = [
        asyncio.create_task(dashboard(scope("/events"), each.receive, each.send))
        for each in exchanges
    ]
    await asyncio.sleep(1)

    assert sorted(each.status for each in exchanges) == [200] * 20 + [503]
    dashboard.close()
    await asyncio.gather(*streams)


async def test_websockets_are_refused() -> None:
    """The dashboard has no websockets."""
    exchange = Exchange()
    await made()(scope("/events") | {"type": "websocket"}, exchange.receive, exchange.send)

    assert exchange.sent == [{"type": "websocket.close", "code": 1008}]
