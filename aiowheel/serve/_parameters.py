"""Parsing and checking of a request's topic name, query parameters and body. Rank 5."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal, shortened

#: pattern of a topic's name; clients remove `.` and `..` from the path of a URL
NAME = r"(?!\.{1,2}$)[A-Za-z0-9._~:-]+"
MOST_SINCE = 2**53 - 1  # the largest integer that every JSON parser represents exactly
_INTEGER = re.compile(r"[0-9]{1,16}")
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,320})?([eE][+-]?[0-9]{1,3})?")  # JSON's notation
_EPOCH = re.compile(r"[0-9a-f]{8}")
_EVENT_ID = re.compile("[0-9a-f]{8}-[0-9]{1,16}")  # an epoch and a version
DEFAULT_TIMEOUT = 30.0
# Parsers of clients limit the nesting: that of Python to 1,000 levels, together with its callers.
_MOST_LEVELS = 200
_CONTAINERS: Final = (list, dict)
_LINE_SEPARATORS = "\x85\u2028\u2029"  # JSON escapes the others, which are control characters
# Bytes of a too large body that are read and discarded. If the service answered and closed while
# the client still sends, the connection would be reset, and the client might not read the answer.
_READ_ON = 16_777_216


@dataclass(frozen=True, slots=True)
class Seen:
    """The last version that a client has seen of a topic, and the epoch of that version."""

    version: int
    epoch: str | None


def topic_name(connection: HTTPConnection, limits: Limits) -> str:
    """Return the topic's name from the path.

    Raises:
        Refusal: The name is too long, or does not match `NAME`.
    """
    name: str = connection.path_params["name"]
    if len(name) > limits.name_length:
        detail = f"name must have at most {limits.name_length} characters, got {len(name)}"
        raise Refusal(400, "bad_name", detail)
    if not re.fullmatch(NAME, name):
        legal = "consist of A-Z a-z 0-9 . _ ~ : -, and not be . or .."
        detail = f"name must {legal}, got {shortened(name)}"
        raise Refusal(400, "bad_name", detail)
    return name


def checked_query(connection: HTTPConnection, *known: str) -> QueryParams:
    """Return the query after checking its parameter names.

    Raises:
        Refusal: A parameter is not in *known*, or is given twice.
    """
    query = connection.query_params
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            legal = f"one of {', '.join(known)}" if known else "left out for this request"
            detail = f"a parameter must be {legal}, got {shortened(name)}"
            raise Refusal(400, "bad_parameter", detail)
        if names.count(name) > 1:
            detail = f"{name} must be given once, got {names.count(name)} values"
            raise Refusal(400, "bad_parameter", detail)
    return query


def seen(query: QueryParams) -> Seen:
    """Return the parameters `since` (default 0) and `epoch` (default None).

    Raises:
        Refusal: A parameter is malformed.
    """
    since = query.get("since", "0")
    if not _INTEGER.fullmatch(since) or int(since) > MOST_SINCE:
        detail = f"since must be a whole number from 0 to {MOST_SINCE}, got {shortened(since)}"
        raise Refusal(400, "bad_since", detail)
    epoch = query.get("epoch")
    if epoch is not None and not _EPOCH.fullmatch(epoch):
        detail = f"epoch must be 8 hexadecimal digits from an answer, got {shortened(epoch)}"
        raise Refusal(400, "bad_epoch", detail)
    return Seen(int(since), epoch)


def timeout(query: QueryParams, limits: Limits) -> float:
    """Return the parameter `timeout`, in seconds.

    Raises:
        Refusal: The timeout is not a decimal number, or out of range.
    """
    text = query.get("timeout")
    if text is None:
        return min(DEFAULT_TIMEOUT, float(limits.timeout))
    if not _DECIMAL.fullmatch(text) or float(text) > limits.timeout:
        detail = f"timeout must be seconds from 0 to {limits.timeout}, got {shortened(text)}"
        raise Refusal(400, "bad_timeout", detail)
    return float(text)


def last_event(request: Request, query: QueryParams) -> Seen:
    """Return the position in the header `Last-Event-ID`; without one, as `seen`.

    A malformed id counts as one of another epoch. It is not refused, because a browser does not
    reconnect after a refusal.

    Raises:
        Refusal: A query parameter is malformed.
    """
    has = seen(query)
    text = request.headers.get("last-event-id")
    if not text:
        return has
    epoch, _, version = text.partition("-")
    return Seen(int(version), epoch) if _EVENT_ID.fullmatch(text) else Seen(0, "")


async def message(request: Request, limits: Limits) -> bytes:
    """Return the body as a JSON value.

    A body of type `application/json` is returned unchanged; any other body becomes a JSON string.

    Raises:
        Refusal: The body is too large, has a content encoding, is not UTF-8, or is declared as
            JSON and is not JSON.
        ClientDisconnect: The client disconnected before the end of the body.
    """
    if "content-encoding" in request.headers:
        coding = shortened(request.headers["content-encoding"])
        raise Refusal(415, "bad_encoding", f"body must have no content encoding, got {coding}")
    body = await _body(request, limits.body_bytes)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"body must be UTF-8, got an invalid byte at {error.start}"
        raise Refusal(400, "bad_text", detail) from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return _as_json(text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _bad_json(f"body must be JSON: {shortened(reason)}") from error
    except ValueError as error:
        most = sys.get_int_max_str_digits()
        raise _bad_json(f"an integer in the body must have at most {most} digits") from error
    if text.count("[") + text.count("{") > _MOST_LEVELS and _levels(value) > _MOST_LEVELS:
        raise _bad_json(f"body must have at most {_MOST_LEVELS} levels of arrays and objects")
    return body


def _levels(value: Any) -> int:
    """Return how deeply arrays and objects are nested."""
    levels = 0
    level: list[Any] = [value]
    while level := [each for each in level if type(each) in _CONTAINERS]:
        levels += 1
        inner: list[Any] = []
        for each in level:
            inner += each.values() if type(each) is dict else each
        level = inner
    return levels


def _as_json(text: str) -> bytes:
    """Return *text* as a JSON string in UTF-8, on one line by every definition of a line.

    Some clients of event streams take U+2028 for the end of a line, as `str.splitlines` does.
    """
    encoded = json.dumps(text, ensure_ascii=False)
    for separator in _LINE_SEPARATORS:
        encoded = encoded.replace(separator, f"\\u{ord(separator):04x}")
    return encoded.encode()


def _refuse_constant(text: str) -> None:
    raise _bad_json(f"body must be JSON: {text} is not a JSON value")


def _bad_json(detail: str) -> Refusal:
    return Refusal(400, "bad_json", detail)


async def _body(request: Request, most: int) -> bytes:
    headers = request.headers
    detail = f"body must have at most {most} bytes"
    length = headers.get("content-length", "").lstrip("0") or "0"
    # A client that sends `Expect: 100-continue` waits for the answer before it sends the body.
    too_much = most if "expect" in headers else most + _READ_ON
    if len(length) > 12 or int(length) > too_much:
        raise Refusal(413, "too_large", f"{detail}, got {length}", {"Connection": "close"})
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > most + _READ_ON:
            raise Refusal(413, "too_large", detail, {"Connection": "close"})
    if size > most:
        raise Refusal(413, "too_large", f"{detail}, got {size}")
    return bytes(body)
