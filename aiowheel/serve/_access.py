"""Access control by `Host`, by `Origin` and by bearer token. Rank 5.

A browser sends the requests of a web page to any address that it can reach, including this machine.
The service therefore refuses a request from a page of another origin. It also refuses a request
whose `Host` is not one of its host names: an attacker can point their own host name at this machine
(DNS rebinding), and then the page and the service seem to have the same origin.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import cast

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from aiowheel._arguments import safe_repr
from aiowheel.errors import BadInputError
from aiowheel.serve._refusal import Refusal, shortened

LEAST_TOKEN = 16  #: minimum number of characters of a token, so that it cannot be guessed
_ANY = "*"
_MOST_CACHED_HOSTS = 100
_BROWSER_HEADERS = frozenset({b"origin", b"sec-fetch-site"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
_HOST_OPTION = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+")
_ORIGIN_OPTION = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_TOKEN_OPTION = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


def check_token(token: str) -> None:
    """Refuse a token that is short or that a header cannot carry.

    Raises:
        BadInputError: It is; the text has only its length, because a token is a secret.
    """
    if len(token) < LEAST_TOKEN or not _TOKEN_OPTION.fullmatch(token):
        characters = f"at least {LEAST_TOKEN} of A-Z a-z 0-9 . _ ~ + / -"
        raise BadInputError(f"tokens must be {characters}, got {len(token)} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The clients that may use the service.

    Attributes:
        hosts: Host names of the service, in addition to `localhost` and IP addresses:
            `topics.example.com`, `*.example.com` for all its subdomains, or `*` for any name.
        origins: Origins of the web pages that may use the service, in addition to its own:
            `https://example.com`, `null` for pages without an origin, or `*` for any page.
        publish_tokens: Tokens that allow a client to publish and to remove topics. Without any,
            every client may.
        subscribe_tokens: Tokens that allow a client to poll and to subscribe. Without any, every
            client may.

    Raises:
        TypeError: A value is not a set of strings.
        BadInputError: A value is malformed, or a token has fewer than 16 characters.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    publish_tokens: frozenset[str] = field(default=frozenset(), repr=False)
    subscribe_tokens: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        _check_strings("hosts", self.hosts)
        _check_strings("origins", self.origins)
        _check_strings("publish_tokens", self.publish_tokens, is_secret=True)
        _check_strings("subscribe_tokens", self.subscribe_tokens, is_secret=True)
        for host in self.hosts:
            if not _HOST_OPTION.fullmatch(host):
                names = "a host name in lower case, *.NAME, an IP address or *"
                raise BadInputError(f"hosts must be {names}, got {host!r}")
        for origin in self.origins:
            if not _ORIGIN_OPTION.fullmatch(origin):
                forms = "SCHEME://HOST[:PORT] in lower case, null or *"
                raise BadInputError(f"origins must be {forms}, got {origin!r}")
        for token in self.publish_tokens | self.subscribe_tokens:
            check_token(token)

    def refuse_foreign(self, connection: HTTPConnection) -> None:
        """Refuse a request for another host, or from a page of another origin.

        Raises:
            Refusal: 403; the host or the origin is not allowed.
        """
        host = connection.headers.get("host")
        if host and not self._allows_host(host):
            detail = f"{shortened(host)} is not a host name of this service; see --allow-host"
            raise Refusal(403, "foreign_host", detail)
        origin = connection.headers.get("origin")
        if origin is None:
            if _is_embedded_elsewhere(connection) and _ANY not in self.origins:
                raise Refusal(403, "foreign_origin", "a page of another origin made this request")
        elif not self._allows_origin(origin, host, connection.scope.get("scheme", "http")):
            detail = f"pages of {shortened(origin)} may not use this service; see --allow-origin"
            raise Refusal(403, "foreign_origin", detail)

    def refuse_without_token(self, connection: HTTPConnection, *, publishing: bool) -> None:
        """Refuse a request that has no token for publishing, or for subscribing.

        Raises:
            Refusal: 401 without a valid token; 403 with a token for the other operation.
        """
        wanted = self.publish_tokens if publishing else self.subscribe_tokens
        if not wanted:
            return
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        if _is_among(given, wanted):
            return
        verb = "publishing" if publishing else "subscribing"
        if _is_among(given, self.subscribe_tokens if publishing else self.publish_tokens):
            challenge = {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
            raise Refusal(403, "wrong_token", f"this token does not allow {verb}", challenge)
        challenge = {"WWW-Authenticate": "Bearer"}
        raise Refusal(401, "no_token", f"{verb} needs a valid bearer token", challenge)

    def _allows_host(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if _ANY in self.hosts:
            return True
        if found is None:
            return False
        name = found[1].lower().removesuffix(".")
        if name == "localhost" or name in self.hosts or _is_ip_address(name.strip("[]")):
            return True
        parents = name.split(".")[1:]
        return any(f"*.{'.'.join(parents[at:])}" in self.hosts for at in range(len(parents)))

    def _allows_origin(self, origin: str, host: str | None, scheme: str) -> bool:
        if _ANY in self.origins or origin in self.origins:
            return True
        origin_scheme, _, place = origin.partition("://")
        # A reverse proxy may have terminated TLS: then this service has http, the page has https.
        # If the service has https itself, a page with http has another origin.
        schemes = {"https"} if scheme in {"https", "wss"} else {"http", "https"}
        return origin_scheme in schemes and host is not None and place.lower() == host.lower()


class Guarded:
    """ASGI middleware that refuses requests by host and origin, and answers CORS preflights.

    Args:
        app: The application. It checks the tokens itself, because a browser sends no token with a
            CORS preflight.
        access: The allowed hosts and origins.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._access = access
        # Cache of allowed hosts of requests without browser headers: 1 us per request, not 20.
        self._allowed_hosts: set[bytes | None] = set()
        self._app = app
        if access.origins:
            self._app = CORSMiddleware(
                app,
                allow_origins=access.origins,
                allow_methods=["DELETE", "GET", "POST"],
                allow_headers=["Authorization", "Last-Event-ID"],
                expose_headers=["Retry-After"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            host = _plain_host(scope)
            if host not in self._allowed_hosts:
                try:
                    self._access.refuse_foreign(HTTPConnection(scope))
                except Refusal as refusal:
                    await refusal.answer()(scope, receive, send)
                    return
                self._cache_allowed(host)
        await self._app(scope, receive, send)

    def _cache_allowed(self, host: bytes | None) -> None:
        if host is not None and len(host) < 256 and len(self._allowed_hosts) < _MOST_CACHED_HOSTS:
            self._allowed_hosts.add(host)


def _plain_host(scope: Scope) -> bytes | None:
    """Return the `Host` of a request without browser headers; None if it has such headers.

    With browser headers, the origin must be checked at each request.
    """
    host: bytes | None = None
    for name, value in scope["headers"]:
        if name in _BROWSER_HEADERS:
            return None
        if name == b"host" and host is None:
            host = value
    return host


def _check_strings(name: str, value: object, *, is_secret: bool = False) -> None:
    if not _is_set_of_strings(value):
        got = f"a {type(value).__name__}" if is_secret else safe_repr(value)
        raise TypeError(f"{name} must be a set of strings, got {got}")


def _is_set_of_strings(value: object) -> bool:
    if not isinstance(value, AbstractSet):
        return False
    return all(isinstance(each, str) for each in cast("AbstractSet[object]", value))


def _is_embedded_elsewhere(connection: HTTPConnection) -> bool:
    """Return whether a page of another site embeds this address, for example as an image."""
    headers = connection.headers
    if headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
        return False
    return headers.get("sec-fetch-dest") != "document"  # "document": the user followed a link


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_among(given: str, tokens: frozenset[str]) -> bool:
    # All tokens are compared, in constant time: the time must not show how much of a token matches.
    matches = [secrets.compare_digest(given.encode(), token.encode()) for token in tokens]
    return any(matches)
