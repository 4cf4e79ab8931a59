"""Clients of redis-py for the addresses of `RedisCounters`. Rank 4; extra `redis`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from aiowheel._printable import scheme_only

_SOCKET = 5.0  # seconds until a client gives up one of several servers


def client_of(address: str) -> Any:
    """Return a client without retries: the store's callers repeat calls, and do so sooner.

    A call that is not repeatable, such as a publish of `aiowheel serve`, would be made twice.

    Raises:
        ValueError: *address* is malformed.
    """
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel
    from redis.backoff import NoBackoff

    _check_account(address)
    options: dict[str, Any] = {"socket_connect_timeout": _SOCKET}
    options["protocol"] = 2  # redis-py spends a sixth more on each message of protocol 3
    if address.startswith(("redis://", "rediss://", "unix://")):
        # redis-py would create a task for each timeout; `RedisCounters` has one for the whole call.
        options["socket_timeout"] = None
        return Redis.from_url(address, retry=Retry(NoBackoff(), 0), **options)
    options["socket_timeout"] = _SOCKET
    scheme, _, rest = address.partition("://")
    shown = scheme_only(address)
    if scheme not in {"redis+sentinel", "redis+cluster"}:
        raise ValueError(
            "server must be redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://, "
            f"got {shown}"
        )
    hosts, _, path = rest.rpartition("@")[2].partition("/")
    try:
        account = urlsplit(f"//{rest.rpartition('@')[0]}@" if "@" in rest else "//")
        places = [urlsplit(f"//{host}") for host in hosts.split(",")]
        nodes = [(place.hostname or "", place.port or 6379) for place in places]
    except ValueError:
        raise ValueError(f"server must name hosts and ports, got {shown}") from None
    if not all(host for host, _ in nodes):
        raise ValueError(f"server must name hosts and ports, got {shown}")
    for option, text in (("username", account.username), ("password", account.password)):
        options[option] = None if text is None else unquote(text)
    if scheme == "redis+cluster":
        startup = [ClusterNode(host, port) for host, port in nodes]
        return RedisCluster(startup_nodes=startup, retry=Retry(NoBackoff(), 0), **options)
    if not path:
        raise ValueError(f"server must end with /master, the name at the Sentinels, got {shown}")
    make: Any = Sentinel  # redis-py does not annotate it
    sentinel = make(nodes, sentinel_kwargs={**options, "retry": Retry(NoBackoff(), 0)})
    client = sentinel.master_for(path, retry=Retry(NoBackoff(), 0), **options)
    client.aiowheel_sentinels = sentinel.sentinels
    return client


async def close_client(client: Any) -> None:
    """Close a client that `client_of` has made."""
    for each in (client, *getattr(client, "aiowheel_sentinels", ())):
        with suppress(Exception):  # the connection is broken already
            await each.aclose()


def _check_account(address: str) -> None:
    """Refuse an address whose account has a character that ends the host: it would be shown."""
    scheme, _, rest = address.partition("://")
    host, *behind = re.split("[/?#]", rest, maxsplit=1)
    is_whole = scheme == "unix" or not any("@" in part for part in behind)
    if scheme in {"redis", "rediss", "unix"}:
        try:
            _ = urlsplit(f"//{host}").port
        except ValueError:
            is_whole = False
    if not is_whole:
        raise ValueError(
            "server must be redis://USER:PASSWORD@HOST:PORT/DATABASE, with %2F in place of a slash "
            f"in the password, got {scheme_only(address)}"
        )
