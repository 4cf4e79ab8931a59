"""Publishing and subscribing over HTTP. Rank 4; needs the `client` extra.

A subscription is a sequence of long polls. Each poll has the client's position, so that it can be
repeated after a lost answer. A publish must not be repeated, because it may have been carried out.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any, Self, cast

from aiowheel._arguments import checked_str, safe_repr
from aiowheel._events import emit
from aiowheel._printable import scheme_only
from aiowheel.client._messages import Message, Progress, Published, TopicRefusedError
from aiowheel.errors import MissingExtraError

try:
    import httpx
except ImportError as error:
    raise MissingExtraError("client") from error

_POLL = 45.0  # timeout of a poll in seconds; the service answers after 30 seconds at the latest
_OTHER = 10.0  # timeout of other requests, in seconds
# The service closes an idle connection after 5 seconds. The client does so earlier, because the
# service may miss a request that is on its way at that moment, for example of a publish every 5 s.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)
_POLL_LIMITS = httpx.Limits(max_keepalive_connections=20, keepalive_expiry=2.0)
_LEAST_DELAY, _MOST_DELAY = 0.1, 5.0  # seconds before a failed request is repeated
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~:-]+")
_TOKEN = re.compile("[!-~]+")
_EPOCH = re.compile("([0-9a-f]{8})?")  # none if the topic does not exist
_MOST_PORT = 65_535
_PAGE = {"epoch": str, "version": int, "missed": int, "reset": bool, "messages": list}
_MESSAGE = {"version": int, "data": object}
_RECEIPT = {"epoch": str, "version": int, "woken": int}
_RETRIED = frozenset(  # temporary failures of the service or of a proxy
    {
        HTTPStatus.REQUEST_TIMEOUT,  # the network has delayed the request
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class TopicClient:
    """Publishes to the topics of an `aiowheel serve`, and subscribes to them.

    `async with` closes its connections at the end of the block. One client serves any number of
    tasks of one event loop.

    Args:
        url: URL of the service without `/topics`, such as `http://127.0.0.1:8080`.
        token: Bearer token, if the service needs one.
        http: An httpx client, for TLS, proxies or Unix sockets; the caller closes it. Its limit of
            connections (100 by default) limits subscriptions and other calls together. Its
            `keepalive_expiry` should be below 5 seconds, because the service then closes an idle
            connection. Without it, each subscription has a connection of its own.

    Raises:
        TypeError: *url* or *token* is not a string.
        ValueError: *url* is no URL of a service, or *token* cannot be sent in a header, for example
            because it ends with a line break.
    """

    def __init__(
        self, url: str, *, token: str | None = None, http: httpx.AsyncClient | None = None
    ) -> None:
        if not _is_service(checked_str("url", url)):
            legal = "http://HOST:PORT or https://HOST:PORT"
            raise ValueError(f"url must be {legal}, got {scheme_only(url)}")
        # Without this check, a subscription would repeat a request that can never be sent.
        if token is not None and not _TOKEN.fullmatch(checked_str("token", token)):
            raise ValueError("token must consist of visible ASCII characters, got others")
        self._topics = f"{url.rstrip('/')}/topics/"
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._is_own = http is None
        self._http = httpx.AsyncClient(limits=_LIMITS) if http is None else http
        # Each subscription holds a connection, and must not take those of the publishes.
        self._polls = httpx.AsyncClient(limits=_POLL_LIMITS) if http is None else http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, except those of a given httpx client. Idempotent."""
        if self._is_own:
            await self._polls.aclose()
            await self._http.aclose()

    async def publish(self, topic: str, data: Any) -> Published:
        """Publish one message, at most once: the request is not repeated.

        Args:
            topic: Name of the topic; the service creates a missing topic.
            data: A value that JSON can represent.

        Raises:
            TypeError: JSON cannot represent *data*.
            ValueError: *topic* is not a legal name, or *data* holds NaN or an infinity, or
                is nested too deeply for Python's JSON encoder.
            TopicRefusedError: The service refuses the request.
            httpx.TransportError: The service cannot be reached, or its answer is lost. The message
                may have been published.
        """
        address = self._address(topic)
        # Not httpx's argument `json`, which sends an empty body for None.
        try:
            body = json.dumps(data, allow_nan=False).encode()
        except RecursionError:  # at about 1,000 levels; the service refuses more than 200
            text = "data must have at most 200 levels of lists and dicts, got about 1,000 or more"
            raise ValueError(text) from None
        headers = self._headers | {"Content-Type": "application/json"}
        answer = await self._http.post(address, content=body, headers=headers, timeout=_OTHER)
        if answer.status_code != HTTPStatus.CREATED:
            raise _refusal(answer)
        receipt = _fields(answer, _RECEIPT)
        position = f"{receipt['epoch']}-{receipt['version']}"
        return Published(topic, receipt["version"], position, receipt["woken"])

    async def remove(self, topic: str) -> bool:
        """Remove the topic and its messages; return whether the topic existed.

        Raises:
            ValueError: *topic* is not a legal name.
            TopicRefusedError: The service refuses the request.
            httpx.TransportError: The service cannot be reached, or its answer is lost.
        """
        address = self._address(topic)
        answer = await self._http.delete(address, headers=self._headers, timeout=_OTHER)
        if answer.status_code not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}:
            raise _refusal(answer)
        return answer.status_code == HTTPStatus.NO_CONTENT

    def subscribe(self, topic: str, *, after: str | None = None) -> AsyncGenerator[Message, None]:
        """Yield every message of the topic once and in order; the generator does not end.

        While the service is unreachable or overloaded, requests are repeated after 0.1 to 5
        seconds, or after the number of seconds in `Retry-After` if that is longer. The first
        failure of a series is logged as `aiowheel.topic_unreachable`. If the service has dropped
        messages, `missed` of the next message counts them; if it has lost the topic, `reset` of the
        next message is True.

        Args:
            topic: Name of the topic, which need not exist.
            after: Position of the last message that the caller has; the subscription continues
                after it. None: begin with the oldest kept message.

        Raises:
            ValueError: An argument is malformed.
            TopicRefusedError: The service refuses the subscription; raised by `anext`.
        """
        return self._messages(topic, self._address(topic), Progress.after(after))

    async def _messages(
        self, topic: str, address: str, progress: Progress
    ) -> AsyncGenerator[Message, None]:
        missed, reset = 0, False
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            page = await self._poll(address, topic, progress)
            missed += page["missed"]
            reset |= page["reset"]
            epoch: str = page["epoch"]
            for each in page["messages"]:
                version = each["version"]
                position = f"{epoch}-{version}"
                yield Message(topic, each["data"], version, position, missed, reset)
                missed, reset = 0, False
            progress = Progress(page["version"], epoch or None)
            if not page["messages"] and loop.time() - began < _LEAST_DELAY:  # a proxy that caches
                await asyncio.sleep(_LEAST_DELAY)

    async def _poll(self, address: str, topic: str, progress: Progress) -> dict[str, Any]:
        failures = 0
        while True:
            delay = random.uniform(0.5, 1) * min(_MOST_DELAY, _LEAST_DELAY * 2.0**failures)  # noqa: S311 - no secret
            try:
                answer = await self._polls.get(
                    address, params=progress.query(), headers=self._headers, timeout=_POLL
                )
            except (httpx.TransportError, httpx.DecodingError) as error:
                reason = repr(error)
            else:
                if answer.status_code == HTTPStatus.OK:
                    page = _fields(answer, _PAGE)
                    if not _follows(page, progress):
                        raise _refusal(answer)
                    return page
                if answer.status_code not in _RETRIED:
                    raise _refusal(answer)
                reason = str(_refusal(answer))
                wanted = answer.headers.get("retry-after", "")
                if wanted.isdecimal():
                    delay = max(delay, float(wanted))  # 0 must not repeat without a pause
            if not failures:
                emit("aiowheel.topic_unreachable", topic=topic, reason=reason)
            failures = min(failures + 1, 10)
            await asyncio.sleep(delay)

    def _address(self, topic: str) -> str:
        # Checked here, because a slash or a question mark would change the address.
        if not _NAME.fullmatch(checked_str("topic", topic)):
            legal = "consist of A-Z a-z 0-9 . _ ~ : -, and not be . or .."
            raise ValueError(f"topic must {legal}, got {safe_repr(topic)}")
        return self._topics + topic


def _is_service(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    is_place = bool(parsed.host) and (parsed.port or 0) <= _MOST_PORT
    is_whole = not parsed.query and not parsed.fragment and " " not in url
    return parsed.scheme in {"http", "https"} and is_place and is_whole


def _fields(answer: httpx.Response, types: Mapping[str, type]) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises:
        TopicRefusedError: It is no object with these fields: another program has answered.
    """
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        raise _refusal(answer) from None
    if not _has(body, types):
        raise _refusal(answer)
    return cast("dict[str, Any]", body)


def _has(value: object, types: Mapping[str, type]) -> bool:
    """Return whether *value* is a JSON object with fields of these names and types."""
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, object]", value)
    return all(name in fields and isinstance(fields[name], types[name]) for name in types)


def _follows(page: Mapping[str, Any], progress: Progress) -> bool:
    """Return whether a page of messages can be the answer to a client with this progress."""
    messages: list[Any] = page["messages"]
    epoch: str = page["epoch"]
    last: int = page["version"]
    missed: int = page["missed"]
    if not all(_has(each, _MESSAGE) for each in messages) or not _EPOCH.fullmatch(epoch):
        return False
    is_same = epoch == progress.epoch and not page["reset"]
    before = progress.version if is_same else 0
    for each in messages:
        if each["version"] <= before:
            return False
        before = each["version"]
    return before <= last and missed >= 0


def _refusal(answer: httpx.Response) -> TopicRefusedError:
    try:
        body = answer.json()
        return TopicRefusedError(answer.status_code, str(body["error"]), str(body["detail"]))
    except (ValueError, KeyError, TypeError, RecursionError):  # an answer of a proxy
        # Not httpx's `text`, which fails for a charset that is a codec of another kind, as "zlib".
        text = answer.content.decode(errors="replace")[:200]
        return TopicRefusedError(answer.status_code, "not_json", text)
