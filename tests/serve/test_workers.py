"""`aiowheel serve --workers`: real processes, killed and restarted while clients read."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from aiowheel.cli import run
from aiowheel.cli.serve import _same_command
from aiowheel.client import TopicClient
from aiowheel.errors import AiowheelError
from aiowheel.serve import TopicApp
from aiowheel.serve._server import TopicServer, _config
from aiowheel.serve._workers import Workers, WorkerSetup
from tests._certificates import made_certificate

from .conftest import Process, process

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
]

COUNT = 20
POLL = 0.1  # seconds between two looks at the processes, which cost much where many run
LAST = "last"
Seen = tuple[int, Any]  # version and data
# A worker that serves only after its parent, which has got SIGTERM from it, has begun to stop.
LATE_WORKER = """
import os, signal
from aiowheel.serve._workers import run_worker, worker_setup

def work(sockets, channel, ready):
    os.kill(os.getppid(), signal.SIGTERM)
    assert channel.recv(1) == b""
    ready()

run_worker(worker_setup(), work)
"""
# A worker that ends after it was ready; its replacement ends the parent.
SHORT_WORKER = """
import os, pathlib, signal
from aiowheel.serve._workers import run_worker, worker_setup

def work(sockets, channel, ready):
    ready()
    marker = pathlib.Path("started")
    if marker.exists():
        os.kill(os.getppid(), signal.SIGTERM)
        channel.recv(1)
    marker.touch()

run_worker(worker_setup(), work)
"""
# A worker that serves until its parent stops it.
STEADY_WORKER = """
from aiowheel.serve._workers import run_worker, worker_setup

def work(sockets, channel, ready):
    ready()
    channel.recv(1)

run_worker(worker_setup(), work)
"""


sqlite = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
# The tests of the stores run with all three stores.
stores = pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("postgres", "redis")),
    ],
    indirect=True,
)


def workers_of(server: Process) -> list[psutil.Process]:
    """Return the worker processes."""
    return psutil.Process(server.process.pid).children()


async def kill_one(server: Process, number: int) -> None:
    """Kill a worker, and wait until there are as many workers as before."""
    before = workers_of(server)
    before[number % len(before)].kill()
    while len(now := workers_of(server)) < len(before) or now == before:  # noqa: ASYNC110 - no event
        await asyncio.sleep(POLL)


async def by_poll(url: str, topic: str) -> AsyncGenerator[Seen, None]:
    """Yield the messages of a topic over polls, with the client library."""
    async with TopicClient(url) as client:
        async for message in client.subscribe(topic):
            assert not message.missed
            assert not message.reset
            yield message.version, message.data


async def by_websocket(url: str, topic: str) -> AsyncGenerator[Seen, None]:
    """Yield the messages over websockets; after a disconnect a new one continues."""
    query = "since=0"
    address = f"{url.replace('http', 'ws')}/topics/{topic}"
    while True:
        with suppress(OSError, WebSocketException):
            async with connect(f"{address}?{query}", close_timeout=1) as socket:
                async for text in socket:
                    page = json.loads(text)
                    if "heartbeat" in page:
                        continue
                    assert (page["missed"], page["reset"]) == (0, False)
                    for message in page["messages"]:
                        yield message["version"], message["data"]
                    query = f"since={page['version']}&epoch={page['epoch']}"
        await asyncio.sleep(POLL)


async def by_events(url: str, topic: str) -> AsyncGenerator[Seen, None]:
    """Yield the messages over server-sent events, as a browser does."""
    headers = {"Accept": "text/event-stream"}
    async with httpx.AsyncClient(timeout=60) as client:
        while True:
            with suppress(httpx.TransportError):
                address = f"{url}/topics/{topic}"
                async with client.stream("GET", address, headers=headers) as answer:
                    assert answer.status_code == 200
                    position = ""
                    async for line in answer.aiter_lines():
                        if line.startswith("id: "):
                            position = line.removeprefix("id: ")
                        elif line.startswith("data: "):
                            page = json.loads(line.removeprefix("data: "))
                            assert (page["missed"], page["reset"]) == (0, False)
                            for message in page["messages"]:
                                yield message["version"], message["data"]
                            headers["Last-Event-ID"] = position
            await asyncio.sleep(POLL)


async def seen_by(messages: AsyncGenerator[Seen, None]) -> list[Seen]:
    """Return all messages up to the last one."""
    seen: list[Seen] = []
    async for message in messages:
        seen.append(message)
        if message[1] == LAST:
            break
    await messages.aclose()
    return seen


async def publish_all(
    url: str, topic: str, count: int, each: Callable[[int], Awaitable[object]]
) -> dict[int, str]:
    """Publish numbered texts and the last one; return the receipts, as texts by version.

    A publish whose connection breaks may have been carried out; the next attempt has another text.
    """
    receipts: dict[int, str] = {}
    async with httpx.AsyncClient(timeout=60) as client:
        number = 0
        while number < count or LAST not in receipts.values():
            text = str(number) if number < count else LAST
            with suppress(httpx.TransportError):
                answer = await client.post(f"{url}/topics/{topic}", content=text)
                if answer.status_code == 201:
                    receipts[answer.json()["version"]] = text
            number += 1
            await each(number)
    return receipts


async def lose_nothing(server: Process, topics: int, messages: int, kills: int) -> None:
    """Publish and read while workers are killed."""
    readers = (by_poll, by_websocket, by_events)
    names = [f"t{number}" for number in range(topics)]
    reading = [
        asyncio.create_task(seen_by(reader(server.url, name)))
        for name in names
        for reader in readers
    ]
    every = messages // kills

    async def killing(number: int) -> None:
        if number % every == 0 and number <= messages:
            await kill_one(server, number // every)

    async def no_more(_number: int) -> None:
        await asyncio.sleep(0)

    publishing = [
        publish_all(server.url, name, messages, no_more if place else killing)
        for place, name in enumerate(names)
    ]
    receipts = dict(zip(names, await asyncio.gather(*publishing), strict=True))
    for place, seen in enumerate(await asyncio.gather(*reading)):
        known = receipts[names[place // len(readers)]]
        assert [version for version, _ in seen] == list(range(1, len(seen) + 1))
        texts = dict(seen)
        assert {version: texts[version] for version in known if version <= len(seen)} == {
            version: text for version, text in known.items() if version <= len(seen)
        }
        order = [int(text) for _, text in seen if text != LAST]
        assert order == sorted(set(order))
        assert len(known) - 1 <= len(order)


@stores
async def test_no_client_loses_a_message_when_workers_are_killed(store: str) -> None:
    """Each client of each kind gets each message once and in order; each receipt holds."""
    with process("--workers", "2", "--store", store, "--heartbeat", "1") as server:
        async with asyncio.timeout(120):
            await lose_nothing(server, topics=2, messages=40, kills=2)
        code, errors = await asyncio.to_thread(server.stop)

    assert code == 0
    assert errors.count("ended by signal 9; it is started again") == 2
    assert len(errors.splitlines()) == 2, errors


@pytest.mark.shared_faults
async def test_no_message_is_lost_in_a_long_run(store: str) -> None:
    """The same with 60 clients, 20 topics and 20 killed workers."""
    with process("--workers", "4", "--store", store, "--heartbeat", "1") as server:
        await lose_nothing(server, topics=20, messages=500, kills=20)
        code, errors = await asyncio.to_thread(server.stop)

    assert code == 0
    assert errors.count("ended by signal 9; it is started again") == 20


@stores
async def test_a_restart_keeps_the_topics(store: str) -> None:
    """A client continues at any worker of the next run without reset or gap, in the same epoch."""
    arguments = ["--workers", "2", "--store", store]
    async with httpx.AsyncClient(timeout=60) as client:
        with process(*arguments) as server:
            first = (await client.post(f"{server.url}/topics/a", content="1")).json()
            assert await asyncio.to_thread(server.stop) == (0, "")
        with process(*arguments) as server:
            for number in range(2, 8):
                position = f"{first['epoch']}-{number - 1}"
                answer = await client.post(f"{server.url}/topics/a", content=str(number))
                headers = {"Connection": "close", "Last-Event-ID": position}
                page = (await client.get(f"{server.url}/topics/a", headers=headers)).json()
                assert (answer.json()["version"], page["reset"], page["missed"]) == (
                    number,
                    False,
                    0,
                )
                assert [message["data"] for message in page["messages"]] == [str(number)]
                assert page["epoch"] == first["epoch"]


@sqlite
async def test_a_stop_answers_all_who_wait(store: str) -> None:
    """Polls of all workers get 503, and no process remains."""
    with process("--workers", "2", "--store", store) as server:
        workers = workers_of(server)
        async with httpx.AsyncClient(timeout=60) as client:
            address = f"{server.url}/topics/a?timeout=60"
            polls = [asyncio.create_task(client.get(address)) for _ in range(COUNT)]
            while not await all_wait(client, server):  # noqa: ASYNC110 - no event
                await asyncio.sleep(POLL)
            code, errors = await asyncio.to_thread(server.stop)
            answers = await asyncio.gather(*polls)

    assert (code, errors) == (0, "")
    assert {answer.status_code for answer in answers} == {503}
    assert not any(each.is_running() for each in workers)


async def all_wait(client: httpx.AsyncClient, server: Process) -> bool:
    """Return whether the numbers of the two workers add up to all clients; either may answer."""
    headers = {"Connection": "close"}
    answers = [await client.get(f"{server.url}/health", headers=headers) for _ in range(20)]
    numbers = {answer.json()["waiters"] for answer in answers}
    return numbers == {COUNT // 2} or sum(numbers) == COUNT


@sqlite
def test_workers_end_when_their_parent_is_killed(store: str, short_path: Path) -> None:
    """No worker outlives its parent, and neither does the folder of their sockets."""
    environment = os.environ | {"TMPDIR": str(short_path)}
    with process("--workers", "2", "--store", store, environment=environment) as server:
        workers = workers_of(server)
        folders = list(short_path.iterdir())
        server.process.kill()
        gone, alive = psutil.wait_procs(workers, timeout=60)

    assert (len(gone), alive) == (2, [])
    assert len(folders) == 1
    assert list(short_path.iterdir()) == []


@sqlite
def test_a_worker_leaves_the_folder_to_its_parent(store: str, short_path: Path) -> None:
    """A worker that a signal ends is replaced, and the others still use the folder."""
    environment = os.environ | {"TMPDIR": str(short_path)}
    with process("--workers", "2", "--store", store, environment=environment) as server:
        workers = workers_of(server)
        (folder,) = short_path.iterdir()
        identity = folder.stat().st_ino
        for each in workers:
            each.terminate()
            each.wait(60)

        assert folder.stat().st_ino == identity
        assert server.stop()[0] == 0
    assert list(short_path.iterdir()) == []


@sqlite
def test_the_workers_of_an_archive_run_the_archive(store: str, tmp_path: Path) -> None:
    """As those of shiv do, it finds the package at run time: `python -m aiowheel` would not."""
    archive = tmp_path / "serve.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        path = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
        file.writestr(
            "__main__.py", f"{path}\nfrom aiowheel.__main__ import main\nsys.exit(main())"
        )
    program = ["-I", str(archive)]

    with process("--workers", "2", "--store", store, program=program) as server:
        commands = [worker.cmdline()[1:] for worker in workers_of(server)]
        code, errors = server.stop()

    assert commands == [[*program, "serve", "--port", "0", "--workers", "2", "--store", store]] * 2
    assert (code, errors) == (0, "")


def test_a_worker_gets_the_options_of_python(tmp_path: Path) -> None:
    """Otherwise `python -I` would be isolated, and its workers would not."""
    code = "from aiowheel.cli.serve import _same_command; print(*_same_command(['serve']))"
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

    done = subprocess.run(
        [sys.executable, "-O", "-s", "-W", "error::UserWarning", "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    *options, dash_m, module, command = done.stdout.split()[1:]
    assert {"-O", "-s", "-Werror::UserWarning", "-P"} <= {*options}
    assert (dash_m, module, command) == ("-m", "aiowheel", "serve")


def test_a_worker_of_a_frozen_program_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executable knows no option of Python."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/opt/app/app")
    monkeypatch.setattr(sys, "argv", ["app", "serve", "--workers", "2"])

    assert _same_command(["serve"]) == ["/opt/app/app", "serve", "--workers", "2"]


# Python runs this file at its start; here it stands for newly installed code.
CODE = """
import pathlib
import aiowheel._build
version = pathlib.Path(__file__).with_name("version").read_text()
if version == "broken":
    raise SystemExit(3)
aiowheel._build.__version__ = version
"""


@sqlite
def test_a_hangup_replaces_every_worker(store: str, tmp_path: Path) -> None:
    """The new workers have the new code and the new token; a bad setting replaces no worker."""
    old, new = "old-token-0123456789", "new-token-0123456789"
    tokens, version = tmp_path / "tokens", tmp_path / "version"
    tokens.write_text(old)
    version.write_text("1")
    (tmp_path / "sitecustomize.py").write_text(CODE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    arguments = ["--workers", "2", "--store", store, "--token", f"@{tokens}"]
    with process(*arguments, environment={**os.environ, "PYTHONPATH": path}) as server:
        assert server.process.stderr is not None
        client = httpx.Client(timeout=60, headers={"Connection": "close"})

        def statuses(token: str) -> set[int]:
            headers = {"Authorization": f"Bearer {token}"}
            address = f"{server.url}/topics/a?timeout=0"
            return {client.get(address, headers=headers).status_code for _ in range(10)}

        def versions() -> set[str]:
            return {client.get(server.url).json()["version"] for _ in range(10)}

        def hang_up() -> str:
            server.process.send_signal(signal.SIGHUP)
            assert server.process.stderr is not None
            # A failure during the start of Python prints more lines, in parts: the notice may be
            # behind such a part.
            return next(each for each in server.process.stderr if "aiowheel: " in each)

        first = workers_of(server)
        tokens.write_text("")
        assert "not reloaded: --token" in hang_up()
        tokens.write_text(new)
        version.write_text("broken")
        assert re.search("not reloaded: worker . ended with exit code", hang_up())
        while workers_of(server) != first:  # the new workers that did not fail are killed
            time.sleep(POLL)
        assert (statuses(old), versions()) == ({200}, {"1"})

        version.write_text("2")
        assert hang_up() == "aiowheel: reloaded\n"
        psutil.wait_procs(first, timeout=60)
        assert len(workers_of(server)) == 2
        assert (statuses(new), statuses(old), versions()) == ({200}, {401}, {"2"})
        workers_of(server)[0].kill()
        assert "it is started again" in server.process.stderr.readline()
        assert (statuses(new), versions()) == ({200}, {"2"})
        client.close()
        assert server.stop() == (0, "")


@sqlite
def test_a_worker_that_dies_after_a_refused_reload_is_started_again(
    store: str, tmp_path: Path
) -> None:
    """It has the tokens and the certificate of the other workers, whatever the files hold now."""
    cert, key = made_certificate(tmp_path, "good")
    trusting = ssl.create_default_context(cafile=str(cert))
    tokens = tmp_path / "tokens"
    tokens.write_text("good-token-0123456789")
    arguments = ["--token", f"@{tokens}", "--tls-cert", str(cert), "--tls-key", str(key)]
    with process("--workers", "2", "--store", store, *arguments) as server:
        assert server.process.stderr is not None
        for file in (tokens, cert, key):
            file.write_text("")
        server.process.send_signal(signal.SIGHUP)
        assert "not reloaded: --token" in server.process.stderr.readline()
        for worker in workers_of(server):
            worker.kill()
            assert "by signal 9; it is started again" in server.process.stderr.readline()
        headers = {"Authorization": "Bearer good-token-0123456789"}
        address = server.url.replace("http:", "https:") + "/topics/a"
        answer = httpx.post(address, content="x", headers=headers, verify=trusting, timeout=30)

        assert answer.status_code == 201
        assert server.stop() == (0, "")


@pytest.mark.thorough
@sqlite
async def test_a_hangup_refuses_no_request(store: str) -> None:
    """Waiting polls get an empty answer, new connections are served, and readers continue."""
    with process("--workers", "2", "--store", store, "--heartbeat", "1") as server:
        assert server.process.stderr is not None
        old = workers_of(server)
        async with httpx.AsyncClient(timeout=240, headers={"Connection": "close"}) as client:
            address = f"{server.url}/topics/a?timeout=120"
            polls = [asyncio.create_task(client.get(address)) for _ in range(COUNT)]
            while not await all_wait(client, server):  # noqa: ASYNC110 - no event
                await asyncio.sleep(POLL)
            readers = (by_poll, by_websocket, by_events)
            reading = [asyncio.create_task(seen_by(each(server.url, "b"))) for each in readers]
            server.process.send_signal(signal.SIGHUP)
            statuses: set[int] = set()
            published = 0
            while any(each.is_running() for each in old):
                answer = await client.post(f"{server.url}/topics/b", content=str(published))
                published += 1
                page = await client.get(f"{server.url}/topics/b?since={published}")
                statuses |= {answer.status_code, page.status_code}
            await client.post(f"{server.url}/topics/b", content=LAST)
            answers = await asyncio.gather(*polls)
            seen = await asyncio.gather(*reading)
        assert await asyncio.to_thread(server.stop) == (0, "aiowheel: reloaded\n")

    assert statuses == {200, 201}
    assert {answer.status_code for answer in answers} == {200}
    assert {len(answer.json()["messages"]) for answer in answers} == {0}
    expected = [(number + 1, str(number)) for number in range(published)]
    assert seen == [[*expected, (published + 1, LAST)]] * len(readers)


def samples(text: str, name: str) -> dict[str, float]:
    """Return the samples of a metric by worker; "" for a sample without a worker."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    workers = [re.search(r'worker="(\d+)"', labels) for labels, _ in found]
    return {
        worker[1] if worker else "": float(value)
        for worker, (_, value) in zip(workers, found, strict=True)
    }


@sqlite
async def test_every_worker_answers_a_scrape_for_all(store: str) -> None:
    """The sums are right at every worker, also after a worker was killed."""
    with process("--workers", "3", "--store", store) as server:
        address = f"{server.url}/metrics"
        async with httpx.AsyncClient(timeout=60, headers={"Connection": "close"}) as client:
            poll = f"{server.url}/topics/a?timeout=60"
            polls = [asyncio.create_task(client.get(poll)) for _ in range(COUNT)]

            async def settled(workers: set[str], waiting: int) -> str:
                while True:
                    text = (await client.get(address)).text
                    waiters = samples(text, "aiowheel_serve_waiters")
                    if set(waiters) == workers and sum(waiters.values()) == waiting:
                        return text
                    await asyncio.sleep(POLL)

            text = await settled({"1", "2", "3"}, COUNT)
            assert samples(text, "aiowheel_serve_workers") == {"": 3.0}
            pending = samples(text, "aiowheel_purgatory_pending")
            assert pending == samples(text, "aiowheel_serve_waiters")
            for _ in range(10):  # so that other workers answer too
                text = await settled({"1", "2", "3"}, COUNT)
                assert samples(text, "aiowheel_purgatory_pending") == pending

            answer = await client.post(f"{server.url}/topics/a", content="x")
            assert answer.status_code == 201
            assert {each.status_code for each in await asyncio.gather(*polls)} == {200}
            text = await settled({"1", "2", "3"}, 0)
            assert sum(samples(text, "aiowheel_purgatory_completed_total").values()) == COUNT
            assert samples(text, "aiowheel_serve_published_total") == {"": 1.0}

            await kill_one(server, 0)
            text = await settled({"1", "2", "3"}, 0)
            while samples(text, "aiowheel_serve_workers") != {"": 3.0}:
                text = await settled({"1", "2", "3"}, 0)
        code, _ = await asyncio.to_thread(server.stop)
    assert code == 0


async def ask(client: httpx.AsyncClient, server: Process, what: str, **query: str) -> Any:
    """Return the dashboard's answer to a question about the purgatory of the service."""
    address = f"{server.url}/dashboard/{what}"
    answer = await client.get(address, params={"purgatory": "topics"} | query)
    assert answer.status_code == 200
    return answer.json()


@sqlite
async def test_the_dashboard_shows_all_workers_or_one(store: str) -> None:
    """Every worker answers for all; the waiters of a key are added up, and can be found."""
    with process("--workers", "2", "--store", store, "--dashboard") as server:
        async with httpx.AsyncClient(timeout=60, headers={"Connection": "close"}) as client:
            poll = f"{server.url}/topics/weather?timeout=60"
            polls = [asyncio.create_task(client.get(poll)) for _ in range(COUNT)]

            async def first(process: str, wanted: Callable[[Any], bool]) -> Any:
                address = f"{server.url}/dashboard/events?process={process}"
                async with client.stream("GET", address) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: ") and "levels" in line:
                            look = json.loads(line.removeprefix("data: "))
                            if wanted(look):
                                return look
                raise AssertionError("the stream ended")

            def is_whole(look: Any) -> bool:
                (purgatory,) = look["purgatories"]
                groups = [each["waiters"] for each in purgatory["oldest"]]
                return (len(look["processes"]), purgatory["pending"], groups) == (2, COUNT, [COUNT])

            looks = [
                await first("", is_whole) for _ in range(4)
            ]  # so that other workers answer too
            one, other = looks[-1]["processes"]
            assert one["waiting"] + other["waiting"] == COUNT
            assert {one["id"], other["id"]} == {each.pid for each in workers_of(server)}
            assert looks[-1]["levels"] == []
            chosen = await first(one["name"], lambda look: "levels" in look)
            assert chosen["process"]["id"] == one["id"]
            assert len(chosen["levels"]) >= 1
            assert chosen["purgatories"][0]["pending"] == one["waiting"]

            ((key, _),) = looks[-1]["purgatories"][0]["keys"]
            found = await ask(client, server, "operations", text=key)
            assert found["waiters"] == COUNT
            names = {each["process"] for each in found["operations"]}
            assert names == {each["name"] for each in (one, other) if each["waiting"]}
            found = await ask(client, server, "keys", text="WEATH", process=other["name"])
            assert sum(each[1] for each in found["keys"]) == other["waiting"]
            for each in polls:
                each.cancel()
        assert await asyncio.to_thread(server.stop) == (0, "")


def run_workers(
    count: int, program: str, folder: Path, ready: Callable[[], None] | None = None
) -> list[str]:
    """Run a service of such workers to its end; return what its parent reported."""
    reports: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Workers(
            count,
            [sys.executable, "-c", program],
            [listener],
            folder,
            ready or (lambda: reports.append("ready")),
            lambda: False,
            reports.append,
        ).run()
    return reports


def test_a_worker_that_is_ready_after_the_stop_changes_nothing(tmp_path: Path) -> None:
    """The sockets are closed by then; the parent reports no address, and ends."""
    assert run_workers(1, LATE_WORKER, tmp_path) == []


def test_a_signal_that_interrupts_no_wait_is_handled(tmp_path: Path) -> None:
    """Such a signal arrives just before the parent waits; here another thread receives it."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    stopped = threading.Event()

    def receive() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        stopped.wait()

    receiver = threading.Thread(target=receive)
    receiver.start()
    try:
        reports = run_workers(
            1, STEADY_WORKER, tmp_path, ready=lambda: os.kill(os.getpid(), signal.SIGTERM)
        )
    finally:
        stopped.set()
        receiver.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    assert reports == []


def refuse_processes(monkeypatch: pytest.MonkeyPatch, *refused: int) -> None:
    """Make the system refuse the processes with these numbers, counted from 1."""
    count = itertools.count(1)
    popen: type[subprocess.Popen[bytes]] = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if next(count) in refused:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return popen(*arguments, **options)

    monkeypatch.setattr("aiowheel.serve._workers.subprocess.Popen", start)


def test_a_worker_that_the_system_refuses_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without free processes does not end the service."""
    monkeypatch.chdir(tmp_path)
    refuse_processes(monkeypatch, 2)

    reports = run_workers(1, SHORT_WORKER, tmp_path)

    refused = f"worker 1 cannot be started: {os.strerror(errno.EAGAIN)}"
    assert reports == [
        "ready",
        "worker 1 ended with exit code 0; it is started again",
        f"{refused}; it is started again",
    ]


def test_a_service_whose_first_workers_are_refused_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the worker that could not be started."""
    refuse_processes(monkeypatch, 2)

    with pytest.raises(AiowheelError, match=r"^worker 2 cannot be started: "):
        run_workers(3, "pass", tmp_path)


def test_a_long_path_of_temporary_files_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No worker is started that could not make its socket."""
    folder = tmp_path / ("d" * 80)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    workers = ["--workers", "2", "--store", f"sqlite:///{tmp_path / 'topics.db'}"]

    assert run(["serve", "--port", "0", "--max-connections", "1", *workers]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aiowheel: the folder of temporary files (TMPDIR) must have a shorter")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--workers", "2"], 2, "--workers 2 needs --store"),
        (["--workers", "0", "--store", "sqlite:///a"], 2, "got '0'"),
        (["--store", "a.db"], 2, "store must be sqlite:///PATH"),
        (["--store", "sqlite:///{}/missing/a.db"], 1, "cannot use the store: "),
        (["--workers", "2", "--store", "sqlite:///{}/missing/a.db"], 1, "cannot use the store: "),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    """The line names the value, and nothing is served."""
    filled = [each.format(tmp_path) for each in arguments]

    assert run(["serve", "--port", "0", "--max-connections", "1", *filled]) == code

    (line,) = capfd.readouterr().err.splitlines()
    assert text in line


async def test_a_worker_ends_whose_parent_was_killed_with_a_report_unread() -> None:
    """The channel then has an error in place of its end."""
    channel, parent = socket.socketpair()
    channel.sendall(b"report")
    parent.close()
    app = TopicApp()
    server = TopicServer(_config(app, None), app, print, None, channel)

    server._take_stop(channel)

    assert server.should_exit
    channel.close()


@pytest.mark.parametrize("store", ["topics.db", "missing/topics.db"])
def test_a_worker_whose_parent_was_killed_at_its_start_prints_nothing(
    tmp_path: Path, store: str
) -> None:
    """The worker can report neither that it serves nor that its store cannot be used."""
    channel, parent = socket.socketpair()
    parent.close()
    arguments = ["--workers", "2", "--store", f"sqlite:///{tmp_path}/{store}"]
    with channel, socket.create_server(("127.0.0.1", 0)) as listener:
        setup = WorkerSetup(1, channel.fileno(), [listener.fileno()], str(tmp_path / "workers"))
        ended = subprocess.run(
            [sys.executable, "-m", "aiowheel", "serve", *arguments],
            env={**os.environ, "AIOWHEEL_WORKER": json.dumps(asdict(setup))},
            pass_fds=(channel.fileno(), listener.fileno()),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not (tmp_path / "workers").exists()
