"""The OpenAPI document of the service, made from its limits and tokens. Rank 5."""

from __future__ import annotations

from typing import Any

from aiowheel._build import __version__
from aiowheel.serve._access import Access
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import DEFAULT_TIMEOUT, MOST_SINCE, NAME

Document = dict[str, Any]  # a JSON object


def document(limits: Limits, access: Access) -> Document:
    """Return the OpenAPI 3.1 document of the service.

    OpenAPI cannot describe websockets and server-sent events; the description text does.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiowheel serve",
            "version": __version__,
            "description": "Clients publish messages to topics, and wait for messages. "
            "GET /topics/{name} with a websocket handshake subscribes to a topic: it takes the "
            "same parameters except `timeout`, and each text message holds one answer, or "
            '`{"heartbeat":true}` after a time without messages. With '
            "`Accept: text/event-stream` it subscribes too: each event holds one answer, and a "
            "comment is the heartbeat.",
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
        "summary": "Return the messages after a version, or wait for the next one; empty after "
        "the timeout.",
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
        "responses": _responses({"200": _news_or_events()}, 400, 401, 403, 408, 429, 503),
    }


def _publish(limits: Limits) -> Document:
    largest = f"At most {limits.body_bytes} bytes of UTF-8. "
    return {
        "operationId": "publish",
        "summary": "Publish a message: JSON unchanged, any other text as a string.",
        "requestBody": {
            "description": largest + "With the type application/json it must be JSON.",
            "content": {"application/json": {"schema": {}}, "text/plain": {"schema": _text()}},
        },
        "responses": _responses(
            {"201": _answer("The message is published.", "Published")},
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
        "summary": "Remove a topic and its messages, and answer the requests that wait for it.",
        "responses": _responses(
            {"204": {"description": "The topic is removed."}}, 400, 401, 403, 404, 408, 503
        ),
    }


def _about() -> Document:
    return {
        "operationId": "about",
        "summary": "Describe the service.",
        "responses": _responses(
            {"200": _answer("Name, version and addresses.", "About")}, 403, 408
        ),
    }


def _live() -> Document:
    return {
        "operationId": "live",
        "summary": "Liveness: succeeds while the process runs, also during the shutdown.",
        "responses": _responses({"200": _answer("The process runs.", "Live")}, 403, 408),
    }


def _health() -> Document:
    return {
        "operationId": "health",
        "summary": "Readiness: succeeds while the service accepts requests.",
        "responses": _responses(
            {"200": _answer("The service accepts requests.", "Health")}, 403, 408, 503
        ),
    }


def _metrics() -> Document:
    content = {"text/plain": {"schema": _text()}}
    return {
        "operationId": "metrics",
        "summary": "Metrics for Prometheus.",
        "responses": _responses(
            {"200": {"description": "Prometheus' text format.", "content": content}}, 403, 408
        ),
    }


def _itself() -> Document:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "openapi",
        "summary": "This document.",
        "responses": _responses(
            {"200": {"description": "OpenAPI 3.1.", "content": content}}, 403, 408
        ),
    }


_REASONS = {
    400: "The topic's name, a parameter or the body is malformed or out of range.",
    401: "The request needs a bearer token.",
    403: "The request is for another host, comes from a page of another origin, or has a token for "
    "the other operation.",
    404: "The topic does not exist.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body has a content encoding.",
    429: "The limit of topics, or of waiting requests per client, is reached.",
    503: "The limit of waiting requests is reached, the store is unavailable, or the service is "
    "shutting down; repeat the request after `Retry-After`.",
}


def _responses(good: Document, *refusals: int) -> Document:
    return good | {str(status): _answer(_REASONS[status], "Refusal") for status in refusals}


def _answer(description: str, schema: str) -> Document:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": reference}}}


def _news_or_events() -> Document:
    answer = _answer("The messages.", "News")
    # A schema cannot describe an event stream. Each event holds `News` and has the `id`
    # EPOCH-VERSION, which a reconnecting client sends as `Last-Event-ID`.
    answer["content"]["text/event-stream"] = {"schema": _text()}
    return answer


def _needed(tokens: frozenset[str]) -> Document:
    """Return the security requirement of an operation that needs one of *tokens*, if any."""
    return {"security": [{"bearer": []}]} if tokens else {}


def _name(limits: Limits) -> Document:
    schema = {**_text(f"^{NAME}$"), "minLength": 1, "maxLength": limits.name_length}
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
