"""The guard that decides which clients may see the dashboard. Rank 4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any

Scope = MutableMapping[str, Any]  # of ASGI
Message = MutableMapping[str, Any]
#: Takes the ASGI scope of a request; returns whether to answer it.
Guard = Callable[[Scope], bool | Awaitable[bool]]

_FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-real-ip"}


def this_machine_only(scope: Scope) -> bool:
    """Return whether the client is on this machine and `Host` names this machine; the default.

    Behind a proxy on this machine every client seems local, so a request with a header
    `X-Forwarded-For`, `X-Real-IP` or `Forwarded` is refused. A proxy that adds none of them must
    refuse the path of the dashboard itself. The check of `Host` prevents DNS rebinding: the page of
    an attacker, whose host name was pointed at this machine, requests that name.

    A request from a page of another origin is refused as well, also if the application allows that
    origin: a browser on this machine sends the requests of every page. A link to the dashboard
    works.
    """
    client = scope.get("client")
    headers: list[tuple[bytes, bytes]] = scope.get("headers", [])
    hosts = [value for name, value in headers if name == b"host"]
    return (
        client is not None
        and _is_loopback(client[0])
        and not any(name in _FORWARDED for name, _ in headers)
        and all(_names_loopback(host.decode("latin-1")) for host in hosts)
        and not _is_of_another_origin(headers, hosts)
    )


def _is_of_another_origin(headers: list[tuple[bytes, bytes]], hosts: list[bytes]) -> bool:
    """Return whether a browser says that a page of another origin made this request."""
    found = dict(headers)
    origin = found.get(b"origin")
    if origin is not None:
        scheme, _, place = origin.lower().partition(b"://")
        return scheme not in {b"http", b"https"} or place not in {host.lower() for host in hosts}
    is_embedded = found.get(b"sec-fetch-dest") != b"document"  # else the user followed a link
    return is_embedded and found.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}


def _names_loopback(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    return name == "localhost" or _is_loopback(name.strip("[]"))


def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    # A socket for both IPv6 and IPv4 reports 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback
