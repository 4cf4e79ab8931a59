"""Shared counters in Redis, by redis-py: one server, Sentinel or Cluster. Rank 4; extra `redis`.

All counters, the epoch and the number of the last hint are fields of one hash, so that eviction or
a restart loses them together. A script raises the counters and publishes one hint. Hints are
numbered, because Redis does not report a lost message. A missing number is a gap. After some
seconds without a hint, the listener reads the last number.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aiowheel._arguments import safe_repr
from aiowheel._background import LastingTask, end_task
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel.errors import AiowheelError, MissingExtraError, StoreUnavailableError
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._outage import Outage
from aiowheel.shared._redis_client import client_of, close_client
from aiowheel.shared._store import (
    CounterPage,
    HintListener,
    checked_key,
    checked_name,
    checked_value,
    deliver_hint,
    new_epoch,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

_HEARTBEAT = 5.0  # seconds without a hint after which the number of the last hint is read
_ON_ITS_WAY = 0.5  # seconds that a hint may travel until it counts as lost
_ANSWER = 10.0  # seconds after which a server that does not answer counts as unavailable
# Follows the settings of the client of a Sentinel, which end with a bracket.
_REASON_OF_SENTINEL = re.compile("> - ([^<>]+?)(?:, <|$)")
#: Calls that run at once: redis-py opens a connection for each of them, at most a hundred.
_MOST_CALLS = 4
#: Errors of a server that accepts no writes at present: too few replicas, a disk that is full, a
#: long script. redis-py has no classes for them. Redis 6 names the error of a command of a script
#: inside another error, which hides the class that redis-py has for it.
_REFUSED = re.compile("(?:^|-)(?:NOREPLICAS|MISCONF|BUSY|OOM|READONLY) ")
#: As `json.dumps`, which would make an encoder for each call.
_compact = json.JSONEncoder(separators=(",", ":")).encode

_EPOCH = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local function begin_history()
  epoch = ARGV[2]
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'rev', 0)
end
if not epoch then begin_history() end
local function publish(values)
  local rev = redis.call('HINCRBY', KEYS[1], 'rev', 1)
  redis.call('PUBLISH', ARGV[1], epoch .. ' ' .. string.format('%.0f', rev) .. ' ' .. values)
end
"""
# Values are compared as text: Lua's numbers are doubles, which are exact only to 2^53.
_SET_GREATER = """
local function set_greater(field, new)
  local old = redis.call('HGET', KEYS[1], field)
  if old and (#old > #new or (#old == #new and old >= new)) then return false end
  redis.call('HSET', KEYS[1], field, new)
  return true
end
"""
_RAISE = (
    _EPOCH
    + _SET_GREATER
    + """
local raised = false
for i = 4, #ARGV, 2 do
  if set_greater(ARGV[i], ARGV[i + 1]) then raised = true end
end
if raised then publish(ARGV[3]) end
return epoch
"""
)
_ADD_ONE = (
    _EPOCH
    + """
local items = {}
for i = 3, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], 1)
  items[#items + 1] = ARGV[i + 1] .. ':' .. redis.call('HGET', KEYS[1], ARGV[i])
end
publish('{' .. table.concat(items, ',') .. '}')
return epoch
"""
)
_COMPARE = (
    _EPOCH
    + """
local answer, items = {epoch}, {}
for i = 3, #ARGV, 4 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '') == ARGV[i + 2] then
    if ARGV[i + 3] == '' then
      redis.call('HDEL', KEYS[1], ARGV[i])
    else
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 3])
      items[#items + 1] = ARGV[i + 1] .. ':' .. ARGV[i + 3]
    end
    answer[#answer + 1] = (i - 3) / 4
  end
end
if #items > 0 then publish('{' .. table.concat(items, ',') .. '}') end
return answer
"""
)
# A script reads the epoch and the page at the same moment.
_SCAN = """
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
return {redis.call('HGET', KEYS[1], 'epoch'), page[1], page[2]}
"""
_TIME = "return redis.call('TIME')"
# The functions for scripts of callers. `begin_anew` ends the history of the counters.
_IN_SCRIPT = (
    _EPOCH
    + _SET_GREATER
    + """
local function advance(values)
  local items = {}
  for key, value in pairs(values) do
    local new = string.format('%.0f', value)
    if set_greater('=' .. key, new) then items[#items + 1] = cjson.encode(key) .. ':' .. new end
  end
  if #items > 0 then publish('{' .. table.concat(items, ',') .. '}') end
end
local function forget(keys)
  for _, key in ipairs(keys) do redis.call('HDEL', KEYS[1], '=' .. key) end
end
local function begin_anew()
  begin_history()
  publish('{}')
end
"""
)


class RedisCounters:
    """A `CounterStore` in Redis 6 or later, for processes on any number of machines.

    Each process holds one connection that listens, and one to five that read and write. All
    counters of a name are in one hash, and on a Cluster in one slot.

    Whether counters survive a restart of the server depends on its configuration. A failover to a
    replica may lose the last writes that the old master had confirmed: each process repeats its own
    recent writes.

    Args:
        server: An address, or a client of redis-py that the caller closes. Addresses:
            `redis://host:port/database`, `rediss://...`, `unix:///path`; for Sentinel
            `redis+sentinel://host:port,host:port/master`; for Cluster
            `redis+cluster://host:port,host:port`. User and password stand before the hosts.
            A client repeats failed calls as configured. With fewer repetitions, the store notices a
            lost connection sooner.
        name: 1 to 40 lower-case letters, digits and underscores. Two applications on one server
            need two names.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: *name* or the address is malformed.
        MissingExtraError: redis-py is not installed.
        AiowheelError: *server* is a Cluster, and redis-py is older than version 8.
    """

    def __init__(self, server: str | Redis | RedisCluster, *, name: str = "aiowheel") -> None:
        try:
            from redis.asyncio import Redis
            from redis.asyncio.cluster import RedisCluster
        except ImportError as error:
            raise MissingExtraError("redis") from error
        _check_server(server, (str, Redis, RedisCluster))
        checked_name(name)
        self._server = server
        self._connect()
        _check_hints_of(self._client)
        # The braces keep both in one slot of a Cluster, so the channel is on the hash's server.
        self._hash = f"{{{name}}}:counters"
        self._channel = f"{{{name}}}:hints"
        self._raise = _Script(_RAISE)
        self._add_one = _Script(_ADD_ONE)
        self._compare = _Script(_COMPARE)
        self._scan = _Script(_SCAN)
        self._time = _Script(_TIME)
        self._last = ("", -1)  # epoch and number of the last hint
        self._first = True  # no hint has arrived since the number was read
        self._heard = 0.0  # when the last message arrived, or the last number was read
        self._first_pubsub: Any = None  # the subscription of `open`, until the task takes it
        self._task: LastingTask | None = None
        self._closed = False

    async def open(self, listener: HintListener) -> None:
        """Subscribe; see `CounterStore`."""
        if self._closed:
            self._connect()
        self._closed = False
        async with self._answers():
            self._first_pubsub = await self._subscribed()
        self._task = LastingTask(partial(self._watch, listener), "aiowheel redis hints")

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Raise counters to values; see `CounterStore`."""
        async with self._answers():
            return _text(await self._run(self._raise, *self._raise_arguments(values)))

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to counters; see `CounterStore`."""
        arguments = [self._channel, new_epoch()]
        for key in keys:
            arguments += (f"={key}", json.dumps(key))
        async with self._answers():
            return _text(await self._run(self._add_one, *arguments))

    def advance_in(self, pipeline: Any, key: str, value: int) -> None:
        """Raise a counter in a transaction of the caller, a pipeline of redis-py with `MULTI`.

        The value takes effect, and the hint is sent, when the pipeline is executed. On a Cluster
        the other keys of the transaction must be in the slot of `{name}`.

        Raises:
            TypeError, ValueError: *key* or *value* is out of range.
        """
        values = {checked_key(key): checked_value("value", value)}
        pipeline.eval(_RAISE, 1, self._hash, *self._raise_arguments(values))

    def script(self, body: str) -> Callable[..., Awaitable[Any]]:
        """Return a coroutine function that runs Lua on the server of the counters.

        Args:
            body: A script. Its arguments begin with `ARGV[3]`. `advance(values)` raises counters,
                given as a table, and sends one hint; `forget(keys)` removes counters;
                `begin_anew()` removes all of them and begins a new epoch. On a Cluster the other
                keys of the script must be in the slot of `{name}`.

        The function raises StoreUnavailableError if the server does not answer; the script may have
        run.
        """
        script = _Script(_IN_SCRIPT + body)

        async def run(*arguments: str | bytes | float) -> Any:
            async with self._answers():
                return await self._run(script, self._channel, new_epoch(), *arguments)

        return run

    async def has_kept_all(self) -> bool:
        """Return whether a restart of the server is certain to keep every write that it confirmed.

        That requires `appendfsync always`, and a server that was not a replica before. The result
        is False if the server does not report these settings, and on a Cluster.

        Raises:
            StoreUnavailableError: The server does not answer.
        """
        from redis.asyncio.cluster import RedisCluster
        from redis.exceptions import ResponseError

        if isinstance(self._client, RedisCluster):
            return False
        async with self._answers():
            try:
                persistence: Any = await self._client.info("persistence")
                replication: Any = await self._client.info("replication")
                settings: Any = await self._client.config_get("appendfsync")
            except ResponseError:  # many hosted servers forbid these commands
                return False
        is_synced = "always" in {_text(value) for value in settings.values()}
        was_replica = set(str(replication.get("master_replid2", ""))) != {"0"}
        return bool(persistence.get("aof_enabled")) and is_synced and not was_replica

    async def _run(self, script: _Script, *arguments: str | bytes | float) -> Any:
        """Run a script on the server of the hash."""
        line = self._line
        caller = self._client if line is None or line.is_busy else line
        return await script.run(caller, self._hash, *arguments)

    def _raise_arguments(self, values: Mapping[str, int]) -> list[str]:
        arguments = [self._channel, new_epoch(), _compact(values)]
        for key, value in values.items():
            arguments += (f"={key}", str(value))
        return arguments

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Read counters; see `CounterStore`."""
        names = list(keys)
        fields = ["epoch", *(f"={key}" for key in names)]
        async with self._answers():
            found = await self._read_fields(fields)
        values = zip(names, found[1:], strict=True)
        return _text(found[0]), {key: int(value) for key, value in values if value is not None}

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """List counters; see `CounterStore`.

        For each page, Redis visits about *limit* counters, whether or not their keys begin with
        *prefix*; of a small hash it visits all, up to 512.
        """
        arguments = (after or "0", f"{_literal(f'={prefix}')}*", str(limit))
        async with self._answers():
            found: Any = await self._run(self._scan, *arguments)
            if found[0] is None:
                await self._read_fields(["epoch"])
                found = await self._run(self._scan, *arguments)
        if found[0] is None:
            raise StoreUnavailableError("Redis has no epoch: its data was just removed")
        epoch, cursor, pairs = _text(found[0]), _text(found[1]), found[2]
        # A field is "=" and the key.
        keys, values = (_text(field)[1:] for field in pairs[::2]), map(int, pairs[1::2])
        return CounterPage(
            epoch, dict(zip(keys, values, strict=True)), cursor if cursor != "0" else None
        )

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change the counters that have their expected values; see `CounterStore`."""
        arguments = [self._channel, new_epoch()]
        for key, (old, new) in changes.items():
            arguments += (f"={key}", json.dumps(key), _number(old), _number(new))
        keys = list(changes)
        async with self._answers():
            answer: Any = await self._run(self._compare, *arguments)
        return _text(answer[0]), {keys[place] for place in answer[1:]}

    async def now_ms(self) -> int:
        """Return the time of the counters' server; see `CounterStore`."""
        async with self._answers():
            # A script, because a Cluster runs it on the server of the counters.
            answer: Any = await self._run(self._time)
        return int(answer[0]) * 1000 + int(answer[1]) // 1000

    async def forget(self, keys: Collection[str]) -> None:
        """Remove counters; see `CounterStore`."""
        if keys:
            async with self._answers():
                await self._client.hdel(self._hash, *(f"={key}" for key in keys))

    async def aclose(self) -> None:
        """Close the connections; see `CounterStore`."""
        self._closed = True
        task, self._task = self._task, None
        try:
            if task is not None:
                await task.end()
        finally:  # also if this call is cancelled
            await self._close_client()

    def _connect(self) -> None:
        """Make what belongs to one event loop: the client, unless it is the caller's, and a limit.

        No connection is opened yet.
        """
        from redis.asyncio import Redis

        server = self._server
        self._client: Any = client_of(server) if isinstance(server, str) else server
        is_single = isinstance(server, str) and isinstance(self._client, Redis)
        self._line = _Line(self._client) if is_single else None
        self._room = asyncio.Semaphore(_MOST_CALLS)

    async def _close_client(self) -> None:
        if isinstance(self._server, str):
            # redis-py leaves connections open if its call is cancelled.
            await asyncio.shield(close_client(self._client))

    # --- listening --------------------------------------------------------------------------

    async def _subscribed(self) -> Any:
        """Return a new subscription, once the server has confirmed it."""
        if hasattr(self._client, "initialize"):
            await self._client.initialize()
        pubsub = self._client.pubsub()
        try:
            await pubsub.subscribe(self._channel)
            while True:
                message = await pubsub.get_message(timeout=_ANSWER)
                if message is not None and message["type"] == "subscribe":
                    break
            await self._note_last()
        except BaseException:
            with suppress(Exception):
                await pubsub.aclose()
            raise
        return pubsub

    async def _note_last(self) -> None:
        """Note the number of the last hint, with which the numbers of later hints are compared."""
        self._last = await self._read_last()
        self._first = True

    async def _read_last(self) -> tuple[str, int]:
        """Return the epoch and the number of the last hint that was sent."""
        epoch, number = await self._read_fields(["epoch", "rev"])
        return _text(epoch), int(number)

    async def _read_fields(self, names: list[str]) -> list[Any]:
        """Return these fields of the hash, the epoch first; a missing epoch is created."""
        for _ in range(3):
            found: list[Any] = await self._client.hmget(self._hash, names)
            if found[0] is not None:
                return found
            await self._run(self._raise, *self._raise_arguments({}))
        raise StoreUnavailableError("Redis has no epoch: its data was just removed")

    async def _watch(self, listener: HintListener) -> None:
        """Deliver hints, and subscribe again whenever one may be lost."""
        backoff, outage = Backoff(), Outage("redis")
        connected, self._first_pubsub = self._first_pubsub, None
        while True:
            try:
                if connected is None:
                    async with self._answers():
                        connected = await self._subscribed()
                    backoff.reset()
                    outage.ended()
                    listener.gap()
                await self._listen(listener, connected)
            except Exception as error:  # the task must survive any error
                if isinstance(error, StoreUnavailableError):
                    outage.failed(error)
                else:
                    emit("aiowheel.shared_listen_failed", store="redis", error=error_repr(error))
                await asyncio.sleep(backoff.next())
            finally:
                if connected is not None:
                    with suppress(Exception):
                        await connected.aclose()
                    connected = None

    async def _listen(self, listener: HintListener, pubsub: Any) -> None:
        """Deliver hints until one is lost."""
        delivery = self._deliver(listener, pubsub)
        task = asyncio.create_task(delivery, name="aiowheel redis messages")
        try:
            await self._until_lost(task)
        finally:
            await end_task(task)

    async def _deliver(self, listener: HintListener, pubsub: Any) -> None:
        """Deliver hints until the connection fails."""
        now = asyncio.get_running_loop().time
        # Not `get_message`, which takes longer, and which would subscribe again without an event.
        read = pubsub.connection.read_response
        while True:
            try:
                # A finite timeout would cost as much as the rest of the call.
                message = await read(timeout=math.inf, disconnect_on_error=False, push_request=True)
            except _transient() as error:
                raise _unavailable(error) from error
            self._heard = now()
            if message and _text(message[0]) == "message":
                self._take(listener, message[2])

    async def _until_lost(self, delivery: asyncio.Task[None]) -> None:
        """Return when a hint that was sent has not arrived; raise the error of the delivery."""
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        patience = _HEARTBEAT
        while True:
            heard = self._heard
            await asyncio.wait([delivery], timeout=heard + patience - loop.time())
            if delivery.done():
                delivery.result()
            if self._heard != heard:
                patience = _HEARTBEAT
                continue
            async with self._answers():
                known = await self._read_last()
            if known == self._last:
                patience = _HEARTBEAT
            elif patience == _ON_ITS_WAY and self._heard == heard:
                return
            else:
                patience = _ON_ITS_WAY
            self._heard = loop.time()

    def _take(self, listener: HintListener, message: object) -> None:
        try:
            epoch, number, values = _text(message).split(" ", 2)
            sent = int(number)
        except ValueError:  # aiowheel has not sent it
            listener.gap()
            return
        known_epoch, known = self._last
        first, self._first = self._first, False
        # The first message may have arrived before the last number was read.
        in_order = sent == known + 1 or (first and sent <= known)
        self._last = (epoch, sent)
        if epoch != known_epoch or not in_order:
            listener.gap()
        deliver_hint(listener, epoch, values)

    # --- errors -----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    @asynccontextmanager
    async def _answers(self) -> AsyncGenerator[None]:
        """Turn the errors of a server that does not answer into `StoreUnavailableError`."""
        try:
            async with asyncio.timeout(_ANSWER), self._room:
                self._check_open()
                yield
        except StoreUnavailableError:
            raise
        except Exception as error:
            if self._line is not None and _is_of_replica(error):
                await self._line.leave_server()
            if isinstance(error, _transient()) or _is_refused_write(error) or _is_reset(error):
                raise _unavailable(error) from error
            raise
        finally:
            if self._closed:  # during the call, which may have opened a connection afterwards
                await self._close_client()


@cache
def _transient() -> tuple[type[Exception], ...]:
    """Return the errors of a server that may answer later."""
    from redis import exceptions

    return (
        exceptions.ConnectionError,
        exceptions.TimeoutError,
        exceptions.ReadOnlyError,  # demoted to a replica
        exceptions.ClusterError,  # also after too many redirections of a slot that moves
        exceptions.MovedError,
        exceptions.AskError,
        exceptions.TryAgainError,
        exceptions.OutOfMemoryError,  # at its limit, until it has room again
        exceptions.RedisClusterException,
        OSError,
        TimeoutError,
    )


def _is_refused_write(error: Exception) -> bool:
    """Return whether *error* is that of a server that accepts no writes at present."""
    from redis.exceptions import ResponseError

    return isinstance(error, ResponseError) and _REFUSED.search(str(error)) is not None


def _is_of_replica(error: Exception) -> bool:
    """Return whether *error* is that of a server that has become a replica."""
    from redis.exceptions import ReadOnlyError

    return isinstance(error, ReadOnlyError) or "-READONLY " in str(error)


def _is_reset(error: Exception) -> bool:
    """Return whether *error* is that of a write to a connection that was reset or closed.

    uvloop raises a RuntimeError. asyncio's `writelines` raised an AttributeError in Python 3.12 and
    in 3.13 before its sixth release (python/cpython#136234). redis-py raises one for a connection
    that another call has closed, because the Cluster has moved a slot.
    """
    if isinstance(error, RuntimeError):
        return "handler is closed" in str(error)
    is_of_attribute = isinstance(error, AttributeError)
    return is_of_attribute and any(name in str(error) for name in ("_add_writer", "writelines"))


def _unavailable(error: Exception) -> StoreUnavailableError:
    """Return the error with the reason, which the `repr` of redis-py's errors leaves out."""
    from redis.asyncio.sentinel import MasterNotFoundError

    if isinstance(error, MasterNotFoundError):
        # The text has the settings of each client, before redis-py 7.4 with the password. The error
        # itself is changed, because a traceback shows the cause as well.
        what, _, clients = str(error).partition(" : ")
        reasons = ", ".join(dict.fromkeys(_REASON_OF_SENTINEL.findall(clients)))
        error.args = (f"{what} ({reasons})" if reasons else what,)
    if isinstance(error, TimeoutError) and not str(error):  # that of `asyncio.timeout`
        return StoreUnavailableError(f"Redis: no answer within {_ANSWER:g} seconds")
    return StoreUnavailableError(f"Redis: {type(error).__name__}: {error}")


class _Line:
    """A connection for one command at a time, which is opened again after an error.

    A command of redis-py's client takes a connection from the pool and keeps statistics: almost as
    much work as the command itself.
    """

    def __init__(self, client: Any) -> None:
        self._pool: Any = client.connection_pool
        self._connection: Any = None
        self.is_busy = False

    async def execute_command(self, *words: str | bytes | float) -> Any:
        """Send a command and return its answer, as redis-py's client does without retries."""
        self.is_busy = True
        try:
            if self._connection is None:
                self._connection = await self._pool.get_connection()
            else:  # the server may have closed it, for example an idle one
                await self._pool.ensure_connection(self._connection)
            await self._connection.send_packed_command(_packed(words))
            return await self._connection.read_response()
        finally:
            self.is_busy = False

    async def leave_server(self) -> None:
        """Close the idle connections: after a failover, the address leads to another server."""
        with suppress(Exception):  # a connection is broken already
            if self._connection is not None and not self.is_busy:
                await self._connection.disconnect(nowait=True)
            await self._pool.disconnect(inuse_connections=False)


class _Script:
    """A script, whose text is sent only to a server that does not have it yet."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._hash = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, caller: Any, key: str, *arguments: str | bytes | float) -> object:
        from redis.exceptions import NoScriptError

        try:
            return await caller.execute_command("EVALSHA", self._hash, 1, key, *arguments)
        except NoScriptError:
            return await caller.execute_command("EVAL", self._text, 1, key, *arguments)


def _packed(words: Sequence[str | bytes | float]) -> bytes:
    """Return a command as it is sent, in less than half of the time that redis-py takes."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _number(value: int | None) -> str:
    """Return a value as an argument for the scripts; None becomes the empty text."""
    return "" if value is None else str(value)


def _literal(text: str) -> str:
    """Return a pattern of Redis that matches *text* alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)


def _text(value: object) -> str:
    """Return an answer of the server as text, whether or not the client decodes answers."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _check_server(server: object, legal: tuple[type, ...]) -> None:
    if not isinstance(server, legal):
        raise TypeError(
            f"server must be an address or a client of redis.asyncio, got {safe_repr(server)}"
        )


def _check_hints_of(client: object) -> None:
    if not hasattr(client, "pubsub"):
        from redis import __version__

        raise AiowheelError(f"Redis Cluster needs redis-py 8 or later, got {__version__}")
