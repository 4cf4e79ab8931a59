"""The service's OpenAPI document, made from the limits it runs with. Rank 5."""

from __future__ import annotations

from typing import Any

from aiowheel._build import __version__
from aiowheel.serve._access import Access
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import DEFAULT_TIMEOUT, MOST_SINCE, NAME

Document = dict[str, Any]  # what JSON holds


def document(limits: Limits, access: Access) -> Document:
    """OpenAPI 3.1 of the service's HTTP addresses; words describe the websocket and its events."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiowheel serve",
            "version": __version__,
            "description": "Topics to publish to and to wait for. GET /topics/{name} with a "
            "websocket handshake subscribes: the same parameters but `timeout`, one text message "
            'an answer, and `{"heartbeat":true}` after silence. With `Accept: text/event-stream` '
            "it subscribes as well: one event an answer, and a comment after silence.",
        },
        "paths": {
            "/topics/{name}": {
                "parameters": [_name(limits)],
                "get": _poll(limits) | _needed(access.subscribe_tokens),
                "post": _publish(limits) | _needed(access.publish_tokens),
                "delete": _remove() | _needed(access.publish_tokens),
            },
            "/": {"get": _about()},
            "/live": {"get": _live()},
            "/health": {"get": _health()},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _itself()},
        },
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Refusal": _object({"error": _text(), "detail": _text()}),
                "News": _news(),
                "Message": _object({"version": _number(1), "data": {}}),
                "Published": _object(
                    {
                        "topic": _text(),
                        "epoch": _text("^[0-9a-f]{8}$"),
                        "version": _number(1),
                        "woken": _number(0),
                    }
                ),
                "About": _object(
                    {
                        "service": {"const": "aiowheel serve"},
                        "version": _text(),
                        "about": _text(),
                        "addresses": {"type": "array", "items": _text()},
                    }
                ),
                "Live": _object({"status": {"const": "ok"}}),
                "Health": _object(
                    {"status": {"const": "ok"}, "topics": _number(0), "waiters": _number(0)}
                ),
            },
        },
    }


def _poll(limits: Limits) -> Document:
    return {
        "operationId": "poll",
        "summary": "News since a version, at once or as soon as there is some; empty when the "
        "timeout comes first.",
        "parameters": [
            _query("since", {**_number(0), "maximum": MOST_SINCE, "default": 0}),
            _query("epoch", _text("^[0-9a-f]{8}$")),
            {**_query("Last-Event-ID", _text()), "in": "header"},
            _query(
                "timeout",
                {
                    "type": "number",
                    "minimum": 0,
                    "maximum": limits.timeout,
                    "default": min(DEFAULT_TIMEOUT, limits.timeout),
                },
            ),
        ],
        "responses": _responses({"200": _news_or_events()}, 400, 401, 403, 429, 503),
    }


def _publish(limits: Limits) -> Document:
    largest = f"At most {limits.body_bytes} bytes of UTF-8. "
    return {
        "operationId": "publish",
        "summary": "One more message: JSON as it is, anything else as a string.",
        "requestBody": {
            "description": largest + "Sent as application/json it must be JSON.",
            "content": {"application/json": {"schema": {}}, "text/plain": {"schema": _text()}},
        },
        "responses": _responses(
            {"201": _answer("It was published.", "Published")},
            400,
            401,
            403,
            408,
            413,
            415,
            429,
            503,
        ),
    }


def _remove() -> Document:
    return {
        "operationId": "remove",
        "summary": "Forget the topic and its messages; requests that wait for it are answered.",
        "responses": _responses({"204": {"description": "It is gone."}}, 400, 401, 403, 404, 503),
    }


def _about() -> Document:
    return {
        "operationId": "about",
        "summary": "What this service is.",
        "responses": _responses({"200": _answer("Its addresses.", "About")}, 403),
    }


def _live() -> Document:
    return {
        "operationId": "live",
        "summary": "Whether the process answers; also while it shuts down.",
        "responses": _responses({"200": _answer("It does.", "Live")}, 403),
    }


def _health() -> Document:
    return {
        "operationId": "health",
        "summary": "Whether the service takes requests.",
        "responses": _responses({"200": _answer("It does.", "Health")}, 403, 503),
    }


def _metrics() -> Document:
    content = {"text/plain": {"schema": _text()}}
    return {
        "operationId": "metrics",
        "summary": "For Prometheus.",
        "responses": _responses(
            {"200": {"description": "In its text format.", "content": content}}, 403
        ),
    }


def _itself() -> Document:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "openapi",
        "summary": "This document.",
        "responses": _responses({"200": {"description": "OpenAPI 3.1.", "content": content}}, 403),
    }


_REASONS = {
    400: "Something in the request is out of range.",
    401: "A bearer token is needed.",
    403: "The request is for another host, by a page of another origin, or its token is for the "
    "other thing.",
    404: "There is no such topic.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is encoded.",
    429: "There are too many topics, or too many requests of the client wait.",
    503: "Too many wait, or the service is shutting down; come back after `Retry-After`.",
}


def _responses(good: Document, *refusals: int) -> Document:
    return good | {str(status): _answer(_REASONS[status], "Refusal") for status in refusals}


def _answer(description: str, schema: str) -> Document:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": reference}}}


def _news_or_events() -> Document:
    answer = _answer("The news.", "News")
    # Of an event stream a schema says nothing: its events hold `News`, each with the `id`
    # EPOCH-VERSION, which a client that comes back sends as `Last-Event-ID`.
    answer["content"]["text/event-stream"] = {"schema": _text()}
    return answer


def _needed(tokens: frozenset[str]) -> Document:
    """What an operation has that needs one of these tokens, if there are any."""
    return {"security": [{"bearer": []}]} if tokens else {}


def _name(limits: Limits) -> Document:
    schema = {**_text(f"^{NAME}+$"), "minLength": 1, "maxLength": limits.name_length}
    return {"name": "name", "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: Document) -> Document:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _news() -> Document:
    messages = {"type": "array", "items": {"$ref": "#/components/schemas/Message"}}
    return _object(
        {
            "topic": _text(),
            "epoch": _text("^([0-9a-f]{8})?$"),
            "version": _number(0),
            "missed": _number(0),
            "reset": {"type": "boolean"},
            "messages": messages,
        }
    )


def _object(properties: Document) -> Document:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(pattern: str | None = None) -> Document:
    return {"type": "string"} | ({} if pattern is None else {"pattern": pattern})


def _number(least: int) -> Document:
    return {"type": "integer", "minimum": least}
