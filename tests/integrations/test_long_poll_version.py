"""Requests that wait until the client's version is out of date."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aiowheel import Purgatory
from aiowheel.integrations.asgi import long_poll_version
from aiowheel.testing import VirtualClock

from .conftest import Ask

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class Document:
    """A document with versions, and an application whose requests wait for the next one."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.version = 0
        self.app = Starlette(routes=[Route("/", self.poll)])

    async def poll(self, request: Request) -> Response:
        """Wait for a version that the client does not have."""
        return await long_poll_version(
            request,
            self.purgatory,
            "document",
            version=lambda: self.version,
            answer=lambda: {"version": self.version},
            timeout=30,
        )

    def write(self) -> int:
        """Make the next version; return the number of answered polls."""
        self.version += 1
        return self.purgatory.advance("document", self.version)


@pytest_asyncio.fixture
async def document() -> AsyncGenerator[Document]:
    """A document at version 3."""
    async with Purgatory("documents", max_pending=1) as purgatory:
        document = Document(purgatory)
        for _ in range(3):
            document.write()
        yield document


@pytest.mark.parametrize("target", ["/", "/?since=2", "/?since=0", "/?since=4"])
async def test_a_client_with_another_version_is_answered_at_once(
    document: Document, ask: Ask, virtual_clock: VirtualClock, target: str
) -> None:
    """It has no version, an older one, or one from before a restart; the answer has its version."""
    exchange = ask(document.app, target)
    await exchange.task

    assert virtual_clock.time() == 0
    assert (exchange.status, exchange.json()) == (200, {"version": 3})
    assert exchange.headers["etag"] == '"3"'
    assert exchange.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("how", ["since", "if-none-match"])
async def test_a_client_with_the_current_version_waits_for_the_next(
    document: Document, ask: Ask, virtual_clock: VirtualClock, how: str
) -> None:
    """It continues with the tag of the answer."""
    if how == "since":
        exchange = ask(document.app, "/?since=3")
    else:
        exchange = ask(document.app, headers={"if-none-match": '"3"'})
    await asyncio.sleep(7)

    assert document.write() == 1
    await exchange.task

    assert virtual_clock.time() == 7
    assert (exchange.status, exchange.json()) == (200, {"version": 4})
    assert exchange.headers["etag"] == '"4"'


@pytest.mark.parametrize(
    "tags",
    ['"3"', 'W/"3"', '"2", "3"', "*", ' "other" , W/"3"', '"2"\n"3"'],
    ids=lambda tags: tags.strip(),
)
async def test_every_form_of_if_none_match_is_understood(
    document: Document, ask: Ask, virtual_clock: VirtualClock, tags: str
) -> None:
    """The current version is in the list; after the timeout the answer is 304."""
    exchange = ask(document.app, headers={"if-none-match": tags})
    await exchange.task

    assert virtual_clock.time() == pytest.approx(30, abs=0.002)
    assert (exchange.status, exchange.body) == (304, b"")
    assert exchange.headers["etag"] == '"3"'


@pytest.mark.parametrize("tags", ['"2"', '"three"', "3", "", '"03"', '"33"'])
async def test_a_tag_that_is_not_the_current_one_is_out_of_date(
    document: Document, ask: Ask, virtual_clock: VirtualClock, tags: str
) -> None:
    """A client with any other tag needs the document."""
    exchange = ask(document.app, headers={"if-none-match": tags})
    await exchange.task

    assert virtual_clock.time() == 0
    assert exchange.status == 200


async def test_nothing_new_since_is_204(document: Document, ask: Ask) -> None:
    """304 is only for conditional requests; the tag gives the version to continue with."""
    exchange = ask(document.app, "/?since=3")
    await exchange.task

    assert (exchange.status, exchange.body) == (204, b"")
    assert exchange.headers["etag"] == '"3"'


@pytest.mark.parametrize(
    "since", ["-1", "abc", "", "1.5", "nan", "1e3", "%d9%a3", str(2**63), "1" * 5000]
)
async def test_a_since_that_is_no_version_is_refused(
    document: Document, ask: Ask, since: str
) -> None:
    """The error has the legal range, and cuts a long value."""
    exchange = ask(document.app, f"/?since={since}")
    await exchange.task

    assert exchange.status == 400
    assert exchange.body.startswith(b"since must be a number from 0 to 2**63 - 1, got ")
    assert len(exchange.body) < 130


@pytest.mark.parametrize("version", [time.time_ns(), 2**63 - 1])
async def test_a_version_may_be_a_time_in_nanoseconds(
    document: Document, ask: Ask, version: int
) -> None:
    """The client of such a version waits."""
    document.version = version
    exchange = ask(document.app, f"/?since={version}")
    await exchange.task

    assert (exchange.status, exchange.headers["etag"]) == (204, f'"{version}"')


@pytest.mark.parametrize("version", [-1, 2**63, float("nan"), 3.0, "3", None, True])
async def test_a_version_out_of_range_is_an_error_of_the_handler(
    document: Document, ask: Ask, version: Any
) -> None:
    """The error names the function, its result and the range; no request waits."""
    document.version = version
    exchange = ask(document.app, "/?since=3")

    legal = re.escape("from 0 to 2**63 - 1, got ")
    with pytest.raises((TypeError, ValueError), match=f"version must be .*{legal}"):
        await exchange.task
    assert len(document.purgatory) == 0


@pytest.mark.parametrize("how", ["since", "if-none-match"])
async def test_a_version_made_with_the_timeout_is_not_lost(
    document: Document, ask: Ask, how: str
) -> None:
    """The tag of a version is never sent without the version."""
    if how == "since":
        exchange = ask(document.app, "/?since=3")
    else:
        exchange = ask(document.app, headers={"if-none-match": '"3"'})
    await asyncio.sleep(0)

    await (
        document.purgatory.aclose()
    )  # the poll expires; its task continues in the next loop iteration
    document.version += 1
    await exchange.task

    assert (exchange.status, exchange.json()) == (200, {"version": 4})
    assert exchange.headers["etag"] == '"4"'


async def test_a_disconnect_cancels_the_wait_for_a_version(document: Document, ask: Ask) -> None:
    """The counter keeps no waiter."""
    exchange = ask(document.app, "/?since=3")
    await asyncio.sleep(1)

    exchange.disconnect()
    await exchange.task

    assert exchange.status == 499
    assert (len(document.purgatory), document.purgatory.watched) == (0, 0)
    assert document.write() == 0


async def test_a_full_purgatory_refuses(document: Document, ask: Ask) -> None:
    """Only clients that would have to wait are refused; others are answered."""
    waiting = ask(document.app, "/?since=3")
    await asyncio.sleep(1)

    refused, served = ask(document.app, "/?since=3"), ask(document.app, "/?since=1")
    await asyncio.gather(refused.task, served.task)

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert served.status == 200
    document.write()
    await waiting.task
    assert waiting.status == 200


async def test_an_answer_may_be_a_response(ask: Ask) -> None:
    """A tag of its own is kept."""

    async def poll(request: Request) -> Response:
        return await long_poll_version(
            request,
            purgatory,
            "key",
            version=lambda: 5,
            answer=lambda: PlainTextResponse("five", headers={"etag": '"five"'}),
            timeout=30,
        )

    async with Purgatory() as purgatory:
        exchange = ask(Starlette(routes=[Route("/", poll)]))
        await exchange.task

    assert (exchange.body, exchange.headers["etag"]) == (b"five", '"five"')


async def tell(*_: object) -> int:
    """A coroutine function, where a plain function is required."""
    return 3


@pytest.mark.parametrize("name", ["version", "answer", "render"])
@pytest.mark.parametrize("how", ["passed", "returned"])
async def test_a_coroutine_is_refused(document: Document, ask: Ask, name: str, how: str) -> None:
    """It is refused as a function, and as the result of a plain function."""

    def plain(*_: object) -> object:
        return tell()

    options: dict[str, Any] = {
        "version": lambda: document.version,
        "answer": lambda: {"version": document.version},
        name: plain if how == "returned" else tell,
    }

    async def poll(request: Request) -> Response:
        return await long_poll_version(request, document.purgatory, "x", timeout=30, **options)

    with pytest.raises(TypeError, match=f"^{name} must be a plain function, "):
        await ask(Starlette(routes=[Route("/", poll)])).task
    assert len(document.purgatory) == 0


async def test_without_a_timeout_it_waits_for_the_next_version(
    document: Document, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """None means no timeout."""

    async def poll(request: Request) -> Response:
        return await long_poll_version(
            request,
            document.purgatory,
            "document",
            version=lambda: document.version,
            answer=lambda: document.version,
            timeout=None,
        )

    exchange = ask(Starlette(routes=[Route("/", poll)]), "/?since=3")
    await asyncio.sleep(1e6)
    document.write()
    await exchange.task

    assert (exchange.status, exchange.json(), virtual_clock.time()) == (200, 4, 1e6)
