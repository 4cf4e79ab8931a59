"""Who may look. Rank 4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any

Scope = MutableMapping[str, Any]  # as ASGI has it
Message = MutableMapping[str, Any]
#: Gets the scope of a request; whether it may look.
Guard = Callable[[Scope], bool | Awaitable[bool]]

_FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-real-ip"}


def this_machine_only(scope: Scope) -> bool:
    """The default guard: a client on this machine, that asks for this machine by name.

    Behind a proxy on this machine every client seems to be here, so a forwarded request is
    refused. A page from elsewhere whose name was made to point here asks for that name: refused.
    """
    client = scope.get("client")
    headers: list[tuple[bytes, bytes]] = scope.get("headers", [])
    hosts = [value for name, value in headers if name == b"host"]
    return (
        client is not None
        and _is_loopback(client[0])
        and not any(name in _FORWARDED for name, _ in headers)
        and all(_names_loopback(host.decode("latin-1")) for host in hosts)
    )


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
    # A socket that hears IPv4 as well as IPv6 tells of 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback
