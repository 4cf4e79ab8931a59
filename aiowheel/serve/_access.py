"""Which requests the service accepts: by `Host`, by `Origin` and by bearer token. Rank 5.

A browser sends a page's requests to any address that it can reach, this machine included. So a
request that a page of another origin makes is refused, and so is one that names the service by a
host name it does not have: an attacker can point a name of their own at this machine (DNS
rebinding), and then the page and the service seem to have one origin.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from aiowheel.errors import BadInputError
from aiowheel.serve._refusal import Refusal, shortened

LEAST_TOKEN = 16  #: characters of a token, which must not be guessed
_ANY = "*"
_MOST_USUAL_HOSTS = 100
_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
_HOST_OPTION = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+")
_ORIGIN_OPTION = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_TOKEN_OPTION = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use the service.

    Attributes:
        hosts: Host names of the service, beside `localhost` and IP addresses, which always are:
            `topics.example.com`, `*.example.com` for all names below, or `*` for any name.
        origins: Origins of the web pages that may use it, beside its own:
            `https://example.com`, `null` for pages that have none, or `*` for any page.
        publish_tokens: Each lets a client publish and remove. Without any, every client may.
        subscribe_tokens: Each lets a client poll and subscribe. Without any, every client may.

    Raises:
        BadInputError: One is malformed, or a token has fewer than 16 characters.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    publish_tokens: frozenset[str] = field(default=frozenset(), repr=False)
    subscribe_tokens: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not _HOST_OPTION.fullmatch(host):
                names = "a host name in lower case, *.NAME, an IP address or *"
                raise BadInputError(f"hosts must be {names}, got {host!r}")
        for origin in self.origins:
            if not _ORIGIN_OPTION.fullmatch(origin):
                forms = "SCHEME://HOST[:PORT] in lower case, null or *"
                raise BadInputError(f"origins must be {forms}, got {origin!r}")
        for token in self.publish_tokens | self.subscribe_tokens:
            if len(token) < LEAST_TOKEN or not _TOKEN_OPTION.fullmatch(token):
                characters = f"at least {LEAST_TOKEN} of A-Z a-z 0-9 . _ ~ + / -"
                # A secret does not belong into an error message.
                raise BadInputError(f"tokens must be {characters}, got {len(token)} characters")

    def refuse_foreign(self, connection: HTTPConnection) -> None:
        """Refuse a request for another host, or by a page of another origin.

        Raises:
            Refusal: It is one; 403.
        """
        host = connection.headers.get("host")
        if host and not self._knows_host(host):
            detail = f"{shortened(host)} is no name of this service; see --allow-host"
            raise Refusal(403, "foreign_host", detail)
        origin = connection.headers.get("origin")
        if origin is None:
            if _is_embedded_elsewhere(connection) and _ANY not in self.origins:
                raise Refusal(403, "foreign_origin", "a page of another origin made this request")
        elif not self._knows_origin(origin, host, connection.scope.get("scheme", "http")):
            detail = f"pages of {shortened(origin)} may not use this service; see --allow-origin"
            raise Refusal(403, "foreign_origin", detail)

    def refuse_without_token(self, connection: HTTPConnection, *, publishing: bool) -> None:
        """Refuse a request that has no token for what it wants to do.

        Raises:
            Refusal: It has none: 401, or one for the other thing: 403.
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
            raise Refusal(403, "wrong_token", f"this token is not for {verb}", challenge)
        challenge = {"WWW-Authenticate": "Bearer"}
        raise Refusal(401, "no_token", f"{verb} needs a valid bearer token", challenge)

    def _knows_host(self, host: str) -> bool:
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

    def _knows_origin(self, origin: str, host: str | None, scheme: str) -> bool:
        if _ANY in self.origins or origin in self.origins:
            return True
        origin_scheme, _, place = origin.partition("://")
        # A proxy in front may have taken the TLS off. Where none did, http is another origin.
        schemes = {"https"} if scheme in {"https", "wss"} else {"http", "https"}
        return origin_scheme in schemes and host is not None and place.lower() == host.lower()


class Guarded:
    """An ASGI application behind an `Access`: it refuses foreign requests, and answers CORS.

    Args:
        app: The application.
        access: Who may use it; its tokens are the application's to check, because a browser asks
            for permission (a CORS preflight) without one.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._access = access
        self._usual_hosts: set[bytes | None] = set()  # that were checked: 1 us, not 20
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
            if host not in self._usual_hosts:
                try:
                    self._access.refuse_foreign(HTTPConnection(scope))
                except Refusal as refusal:
                    await refusal.answer()(scope, receive, send)
                    return
                self._note_usual(host)
        await self._app(scope, receive, send)

    def _note_usual(self, host: bytes | None) -> None:
        if host is not None and len(host) < 256 and len(self._usual_hosts) < _MOST_USUAL_HOSTS:
            self._usual_hosts.add(host)


def _plain_host(scope: Scope) -> bytes | None:
    """The host of a request that no browser sent; None: its other headers matter as well."""
    host: bytes | None = None
    for name, value in scope["headers"]:
        if name in _OF_BROWSERS:
            return None
        if name == b"host" and host is None:
            host = value
    return host


def _is_embedded_elsewhere(connection: HTTPConnection) -> bool:
    """Whether a browser says that another site's page embeds this address, as an image may."""
    headers = connection.headers
    if headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
        return False
    return headers.get("sec-fetch-dest") != "document"  # a link that a person follows


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_among(given: str, tokens: frozenset[str]) -> bool:
    # Every one is compared, in constant time: the time must not say how much of one is right.
    matches = [secrets.compare_digest(given.encode(), token.encode()) for token in tokens]
    return any(matches)
