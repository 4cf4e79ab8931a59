"""Refused requests: foreign hosts, foreign pages, and clients without a token."""

import json
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from aiowheel.errors import BadInputError
from aiowheel.serve import Access, TopicApp
from aiowheel.serve._access import Guarded
from aiowheel.serve._app import _example

from .conftest import Serving, Subscriber

pytestmark = [pytest.mark.virtual_time, pytest.mark.one_build]

PUBLISH, SUBSCRIBE = "publish-0123456789", "subscribe-0123456789"
EVIL = "http://evil.example"


async def status(app: TopicApp, headers: dict[str, str], method: str = "GET") -> tuple[int, str]:
    """Return the status and the error word of one request with these headers."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
        answer = await client.request(method, "/topics/a?timeout=0", headers=headers)
    return answer.status_code, answer.json()["error"] if answer.status_code >= 400 else ""


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "192.168.0.7:80",
        "topics.example.com",
        "Topics.Example.Com:443",
        "a.b.wild.example",
    ],
)
async def test_a_host_of_the_service_is_served(serving: Serving, host: str) -> None:
    """`localhost`, IP addresses and the names of `--allow-host` are accepted."""
    app = TopicApp(access=Access(hosts=frozenset({"topics.example.com", "*.wild.example"})))
    async with serving(app):
        assert await status(app, {"Host": host}) == (200, "")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "wild.example",
        "evilwild.example",
        "topics.example.com.evil.example",
        "[::1",
        "a b",
        "localhost@evil.example",
    ],
)
async def test_a_foreign_host_is_refused(serving: Serving, host: str) -> None:
    """This prevents DNS rebinding, where an attacker's host name points at this machine."""
    app = TopicApp(access=Access(hosts=frozenset({"topics.example.com", "*.wild.example"})))
    async with serving(app):
        assert await status(app, {"Host": host}) == (403, "foreign_host")


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://localhost:3000", "https://localhost:8080.evil.example", "x"]
)
async def test_a_page_of_another_origin_is_refused(
    serving: Serving, method: str, origin: str
) -> None:
    """Every method is refused, and another port of this machine is another origin."""
    app = TopicApp()
    async with serving(app):
        assert await status(app, {}) == (200, "")  # caches the host
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        assert await status(app, headers, method) == (403, "foreign_origin")


async def test_no_foreign_page_publishes(serving: Serving) -> None:
    """The request is refused before its message is kept; a page of the service may publish."""
    app = TopicApp()
    async with serving(app) as client:
        foreign = await client.post("/topics/a", content="x", headers={"Origin": EVIL})
        own = await client.post("/topics/b", content="x", headers={"Origin": "http://localhost"})
        health = (await client.get("/health")).json()

    assert (foreign.status_code, own.status_code, health["topics"]) == (403, 201, 1)


async def test_a_foreign_page_opens_no_websocket(serving: Serving) -> None:
    """Browsers send such handshakes; the refusal has the usual body."""
    app = TopicApp()
    headers = [(b"host", b"localhost"), (b"origin", EVIL.encode())]
    async with serving(app), Subscriber(app, "/topics/a", headers=headers) as subscriber:
        start = await subscriber.from_app.get()
        body = await subscriber.from_app.get()

    assert start["status"] == 403
    assert json.loads(body["body"])["error"] == "foreign_origin"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "script"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}, 200),
    ],
)
async def test_a_foreign_page_embeds_nothing(
    serving: Serving, headers: dict[str, str], expected: int
) -> None:
    """An image has no `Origin`, but has `Sec-Fetch-Site`; a followed link is accepted."""
    app = TopicApp()
    async with serving(app):
        assert await status(app, {}) == (200, "")  # caches the host
        assert (await status(app, headers))[0] == expected


async def test_a_client_with_many_hosts_fills_no_memory() -> None:
    """The hosts beyond the first hundred are checked at each request."""
    guarded = Guarded(PlainTextResponse("in"), Access(hosts=frozenset({"*"})))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded)) as client:
        for number in range(101):
            assert (await client.get(f"http://h{number}.example/")).status_code == 200

    assert len(guarded._allowed_hosts) == 100


async def test_an_allowed_page_reads_and_publishes(serving: Serving) -> None:
    """Responses, refusals and the preflight have the CORS headers."""
    app = TopicApp(access=Access(origins=frozenset({"https://app.example"})))
    mine = {"Origin": "https://app.example"}
    async with serving(app) as client:
        preflight = await client.options(
            "/topics/a",
            headers={
                **mine,
                "Access-Control-Request-Method": "DELETE",
                "Access-Control-Request-Headers": "authorization,content-type,last-event-id",
            },
        )
        published = await client.post("/topics/a", content="x", headers=mine)
        refused = await client.get("/topics/a?since=x", headers=mine)
        foreign = await client.get("/topics/a", headers={"Origin": EVIL})

    allowed = "access-control-allow-origin"
    assert (preflight.status_code, published.status_code, refused.status_code) == (200, 201, 400)
    assert "DELETE" in preflight.headers["access-control-allow-methods"]
    for answer in (preflight, published, refused):
        assert answer.headers[allowed] == "https://app.example"
    assert (foreign.status_code, allowed in foreign.headers) == (403, False)


@pytest.mark.parametrize(
    ("scheme", "origin", "expected"),
    [
        ("http", "http://localhost:8080", 200),
        ("http", "https://localhost:8080", 200),  # a proxy terminated TLS
        ("https", "https://localhost:8080", 200),
        ("https", "http://localhost:8080", 403),
    ],
)
async def test_http_is_another_origin_than_https(
    serving: Serving, scheme: str, origin: str, expected: int
) -> None:
    """A page over http, which an attacker in the network can forge, cannot use an https service."""
    app = TopicApp()
    transport = httpx.ASGITransport(app)
    async with (
        serving(app),
        httpx.AsyncClient(transport=transport, base_url=f"{scheme}://localhost:8080") as client,
    ):
        answer = await client.get("/topics/a?timeout=0", headers={"Origin": origin})

    assert answer.status_code == expected


def bearer(token: str) -> dict[str, str]:
    """Return the header of a client with *token*."""
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", {}, (401, "no_token")),
        ("GET", bearer("x" * 30), (401, "no_token")),
        ("GET", {"Authorization": f"Basic {SUBSCRIBE}"}, (401, "no_token")),
        ("GET", bearer("ä"), (401, "no_token")),
        ("GET", bearer(PUBLISH), (403, "wrong_token")),
        ("GET", bearer(SUBSCRIBE), (200, "")),
        ("GET", {"Authorization": f"bearer  {SUBSCRIBE}"}, (200, "")),
        ("POST", bearer(SUBSCRIBE), (403, "wrong_token")),
        ("POST", {}, (401, "no_token")),
        ("DELETE", {}, (401, "no_token")),
        ("DELETE", bearer(PUBLISH), (404, "no_such_topic")),
    ],
)
async def test_each_operation_needs_its_token(
    serving: Serving, method: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    """Without a token the answer is 401 with a challenge; with the other token it is 403."""
    access = Access(publish_tokens=frozenset({PUBLISH}), subscribe_tokens=frozenset({SUBSCRIBE}))
    async with serving(TopicApp(access=access)) as client:
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        query = "?timeout=0" if method == "GET" else ""
        answer = await client.request(method, f"/topics/a{query}", headers=encoded)

    error = answer.json()["error"] if answer.status_code >= 400 else ""
    assert (answer.status_code, error) == expected
    assert ("www-authenticate" in answer.headers) == (answer.status_code in {401, 403})


async def test_a_token_opens_a_websocket(serving: Serving) -> None:
    """Without a token the handshake is refused."""
    app = TopicApp(access=Access(subscribe_tokens=frozenset({SUBSCRIBE})))
    mine = [(b"authorization", f"Bearer {SUBSCRIBE}".encode())]
    async with serving(app):
        async with Subscriber(app, "/topics/a") as stranger:
            assert (await stranger.from_app.get())["status"] == 401
        async with Subscriber(app, "/topics/a", headers=mine) as subscriber:
            await subscriber.accepted()


async def test_tokens_can_be_replaced_at_run_time(serving: Serving) -> None:
    """From the next request on, the new token is accepted and the old one is refused."""
    app = TopicApp(access=Access(publish_tokens=frozenset({"old-" * 4})))
    async with serving(app) as client:
        before = await client.post("/topics/a", content="x", headers=bearer("old-" * 4))
        app.access = Access(publish_tokens=frozenset({"new-" * 4}))
        after = await client.post("/topics/a", content="x", headers=bearer("old-" * 4))
        renewed = await client.post("/topics/a", content="x", headers=bearer("new-" * 4))

    assert [each.status_code for each in (before, after, renewed)] == [201, 401, 201]


async def test_the_openapi_document_names_the_required_tokens(serving: Serving) -> None:
    """Exactly the operations that need a token have `security`."""
    app = TopicApp(access=Access(publish_tokens=frozenset({PUBLISH})))
    async with serving(app) as client:
        path = (await client.get("/openapi.json")).json()["paths"]["/topics/{name}"]

    assert [method for method in ("get", "post", "delete") if "security" in path[method]] == [
        "post",
        "delete",
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("hosts", "http://a.example", "hosts must be"),
        ("hosts", "a.example:80", "hosts must be"),
        ("hosts", "a.*.example", "hosts must be"),
        ("origins", "a.example", "origins must be"),
        ("origins", "https://a.example/path", "origins must be"),
        ("publish_tokens", "short", "got 5 characters"),
        ("subscribe_tokens", "with a blank inside", "got 19 characters"),
    ],
)
def test_a_bad_rule_is_refused(name: str, value: str, text: str) -> None:
    """The constructor raises; neither the error nor the repr holds a token."""
    arguments: dict[str, Any] = {name: frozenset({value})}
    with pytest.raises(BadInputError, match=text) as error:
        Access(**arguments)
    if "tokens" in name:
        assert value not in str(error.value)
    assert PUBLISH not in repr(Access(publish_tokens=frozenset({PUBLISH})))


def test_the_dashboards_example_has_a_token_if_one_is_needed() -> None:
    """The example names the environment variable of the token, not the token."""
    token = "subscribe-0123456789"
    plain = _example(Access(publish_tokens=frozenset([token])))
    guarded = _example(Access(subscribe_tokens=frozenset([token])))

    assert "Authorization" not in plain
    assert '-H "Authorization: Bearer $AIOWHEEL_TOKEN"' in guarded
    assert token not in guarded
