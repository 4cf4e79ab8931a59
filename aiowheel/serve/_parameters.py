"""What a request asks for: the name, the query, the body; each checked. Rank 5."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal, shortened

NAME = "[A-Za-z0-9._~:-]"  #: what a topic's name is made of
MOST_SINCE = 2**53 - 1  # what every JSON reader keeps exactly
_INTEGER = re.compile(r"[0-9]{1,16}")
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,320})?([eE][+-]?[0-9]{1,3})?")  # as JSON has it
_EPOCH = re.compile(r"[0-9a-f]{8}")
_EVENT_ID = re.compile("[0-9a-f]{8}-[0-9]{1,16}")  # an epoch and a version
DEFAULT_TIMEOUT = 30.0
# A client that is answered while it still sends may never read the answer: its connection is reset.
# So this much of a body that is too large is read and thrown away.
_READ_ON = 16_777_216


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client has seen of a topic: a version, and in which life of the topic."""

    version: int
    epoch: str | None


def topic_name(connection: HTTPConnection, limits: Limits) -> str:
    """The topic in the path.

    Raises:
        Refusal: It is too long or holds other characters.
    """
    name: str = connection.path_params["name"]
    if len(name) > limits.name_length:
        detail = f"a topic's name has at most {limits.name_length} characters, got {len(name)}"
        raise Refusal(400, "bad_name", detail)
    if not re.fullmatch(f"{NAME}+", name):
        detail = f"a topic's name is made of A-Z a-z 0-9 . _ ~ : -, got {shortened(name)}"
        raise Refusal(400, "bad_name", detail)
    return name


def checked_query(connection: HTTPConnection, *known: str) -> QueryParams:
    """The query, without a parameter that is not *known* or given twice.

    Raises:
        Refusal: There is one.
    """
    query = connection.query_params
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no parameters"
            raise Refusal(400, "bad_parameter", f"{shortened(name)} is unknown; this {takes}")
        if names.count(name) > 1:
            raise Refusal(400, "bad_parameter", f"{name} must be given once")
    return query


def seen(query: QueryParams) -> Seen:
    """The parameters `since`, 0 by default, and `epoch`.

    Raises:
        Refusal: One is malformed.
    """
    since = query.get("since", "0")
    if not _INTEGER.fullmatch(since) or int(since) > MOST_SINCE:
        detail = f"since must be a whole number from 0 to {MOST_SINCE}, got {shortened(since)}"
        raise Refusal(400, "bad_since", detail)
    epoch = query.get("epoch")
    if epoch is not None and not _EPOCH.fullmatch(epoch):
        detail = f"epoch must be 8 hexadecimal digits, as an answer gave it, got {shortened(epoch)}"
        raise Refusal(400, "bad_epoch", detail)
    return Seen(int(since), epoch)


def timeout(query: QueryParams, limits: Limits) -> float:
    """The parameter `timeout`, in seconds.

    Raises:
        Refusal: It is no decimal number, or out of range.
    """
    text = query.get("timeout")
    if text is None:
        return min(DEFAULT_TIMEOUT, float(limits.timeout))
    if not _DECIMAL.fullmatch(text) or float(text) > limits.timeout:
        detail = f"timeout must be seconds from 0 to {limits.timeout}, got {shortened(text)}"
        raise Refusal(400, "bad_timeout", detail)
    return float(text)


def last_event(request: Request, query: QueryParams) -> Seen:
    """The header `Last-Event-ID` of a client that comes back, else as `seen`.

    An id that is none of this service's is not refused, for a browser would not come back after
    that: it counts as one of another life of the topic.

    Raises:
        Refusal: A parameter is malformed.
    """
    has = seen(query)
    text = request.headers.get("last-event-id")
    if not text:
        return has
    epoch, _, version = text.partition("-")
    return Seen(int(version), epoch) if _EVENT_ID.fullmatch(text) else Seen(0, "")


async def message(request: Request, limits: Limits) -> bytes:
    """The body as a JSON value: itself when it is sent as JSON, else its text as a string.

    Raises:
        Refusal: It is too large, encoded, no UTF-8, or not the JSON it says it is.
        ClientDisconnect: The client left before it had sent all.
    """
    if "content-encoding" in request.headers:
        coding = shortened(request.headers["content-encoding"])
        raise Refusal(415, "bad_encoding", f"the body must be sent as it is, got {coding}")
    body = await _body(request, limits.body_bytes)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"the body must be UTF-8; byte {error.start} is not"
        raise Refusal(400, "bad_text", detail) from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return json.dumps(text).encode()
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, "bad_json", f"the body must be JSON: {shortened(reason)}") from error
    return body


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON value")


async def _body(request: Request, most: int) -> bytes:
    headers = request.headers
    detail = f"a body has at most {most} bytes"
    length = headers.get("content-length", "0")
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
