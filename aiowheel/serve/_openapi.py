"""The service's OpenAPI document, made from the limits it runs with. Rank 5."""

from __future__ import annotations

from typing import Any

from aiowheel._build import __version__
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import DEFAULT_TIMEOUT, MOST_SINCE, NAME

Document = dict[str, Any]  # what JSON holds


def document(limits: Limits) -> Document:
    """OpenAPI 3.1 of the service's HTTP addresses; the websocket is told of in words."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiowheel serve",
            "version": __version__,
            "description": "Topics to publish to and to wait for. GET /topics/{name} with a "
            "websocket handshake subscribes: the same parameters but `timeout`, one text message "
            'an answer, and `{"heartbeat":true}` after silence.',
        },
        "paths": {
            "/topics/{name}": {
                "parameters": [_name(limits)],
                "get": _poll(limits),
                "post": _publish(limits),
                "delete": _remove(),
            },
            "/health": {"get": _health()},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _itself()},
        },
        "components": {
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
                "Health": _object(
                    {"status": {"const": "ok"}, "topics": _number(0), "waiters": _number(0)}
                ),
            }
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
        "responses": _responses({"200": _answer("The news.", "News")}, 400, 429, 503),
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
            {"201": _answer("It was published.", "Published")}, 400, 408, 413, 415, 429, 503
        ),
    }


def _remove() -> Document:
    return {
        "operationId": "remove",
        "summary": "Forget the topic and its messages; who waits for it is answered.",
        "responses": _responses({"204": {"description": "It is gone."}}, 400, 404, 503),
    }


def _health() -> Document:
    return {
        "operationId": "health",
        "summary": "Whether the service takes requests.",
        "responses": _responses({"200": _answer("It does.", "Health")}, 503),
    }


def _metrics() -> Document:
    content = {"text/plain": {"schema": _text()}}
    return {
        "operationId": "metrics",
        "summary": "For Prometheus.",
        "responses": {"200": {"description": "In its text format.", "content": content}},
    }


def _itself() -> Document:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "openapi",
        "summary": "This document.",
        "responses": {"200": {"description": "OpenAPI 3.1.", "content": content}},
    }


_REASONS = {
    400: "Something in the request is out of range.",
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
