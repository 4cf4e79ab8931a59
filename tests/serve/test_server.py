"""`aiowheel serve` as a process: real sockets, misbehaving clients, and the shutdown."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from aiowheel.cli import run
from aiowheel.serve import Limits, TopicApp
from tests._certificates import made_certificate

from .conftest import Process, process, read_to_end, waiters_reach

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

HUGE = 16_000_000  # bytes; more than the socket buffers of both sides hold


def poll(path: str) -> bytes:
    """Return the bytes of a long-poll request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def read_until(connection: socket.socket, end: bytes) -> None:
    """Read up to and including *end*, which the server must send."""
    received = b""
    while end not in received:
        chunk = connection.recv(65_536)
        assert chunk, received
        received += chunk


def refusal(answer: bytes) -> tuple[int, str]:
    """Return status and error word of a raw answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_it_serves_over_a_real_socket(server: Process) -> None:
    """A client can publish, read and wait on the printed port."""
    httpx.post(f"{server.url}/topics/real", content="hello", timeout=60)

    answer = httpx.get(f"{server.url}/topics/real", timeout=60)

    assert [message["data"] for message in answer.json()["messages"]] == ["hello"]


async def test_websocket_subscribers_get_messages_and_heartbeats(server: Process) -> None:
    """The client is the websockets library."""
    async with (
        httpx.AsyncClient(timeout=60) as client,
        connect(f"ws://127.0.0.1:{server.port}/topics/socket") as socket,
    ):
        assert json.loads(await socket.recv()) == {"heartbeat": True}
        await client.post(f"{server.url}/topics/socket", content="x")
        while "messages" not in (answer := json.loads(await socket.recv())):
            pass

    assert answer["messages"] == [{"version": 1, "data": "x"}]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\xff\xff\xff\xff", id="reserved bits"),
        pytest.param(b"\x81\x05hello", id="not masked"),
        pytest.param(b"\x89\xfe\x00\x7e" + bytes(130), id="oversized ping"),
        pytest.param(b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", id="2**63 bytes"),
        pytest.param(b"\x81\x82\x00\x00\x00\x00\xff\xff", id="no UTF-8"),
        pytest.param(b"\x80\x80\x00\x00\x00\x00", id="continues nothing"),
    ],
)
def test_a_broken_frame_closes_that_connection_alone(server: Process, frame: bytes) -> None:
    """The close frame has a code, and the service continues."""
    key = base64.b64encode(os.urandom(16))
    with server.connect() as connection:
        connection.sendall(
            b"GET /topics/broken HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: %b\r\n\r\n" % key
        )
        assert b"101 Switching" in connection.recv(65_536)
        connection.sendall(frame)
        closing = read_to_end(connection)

    codes = {code.to_bytes(2, "big") for code in (1002, 1007, 1009)}
    assert any(code in closing for code in codes)
    asyncio.run(waiters_reach(server, 0))


async def test_a_huge_message_of_a_subscriber_is_refused(server: Process) -> None:
    """The close code is 1009, because subscribers need not send anything."""
    async with connect(f"ws://127.0.0.1:{server.port}/topics/huge") as socket:
        await socket.send("x" * 1_000_000)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await socket.recv()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize(
    ("request_bytes", "status", "error"),
    [
        pytest.param(b"GARBAGE\r\n\r\n", 400, "bad_request", id="no HTTP"),
        pytest.param(b"GET /topics/a HTTP/1.1\r\n\r\n", 400, "bad_request", id="no host"),
        # One byte above the limit: the service closes at once, and unread bytes would reset the
        # connection before the client has read the answer.
        pytest.param(b"GET /".ljust(16_385, b"x"), 431, "bad_request", id="endless line"),
        pytest.param(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            400,
            "bad_request",
            id="negative length",
        ),
        pytest.param(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
            413,
            "too_large",
            id="length of 100 GB",
        ),
        pytest.param(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000,
            413,
            "too_large",
            id="body over the limit",
        ),
        pytest.param(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            + b"400\r\n%b\r\n" % (b"x" * 1024) * 200
            + b"0\r\n\r\n",
            413,
            "too_large",
            id="chunks over the limit",
        ),
    ],
)
def test_bad_requests_are_answered_with_json(
    server: Process, request_bytes: bytes, status: int, error: str
) -> None:
    """The service reads the request to its end, so that the client can read the answer."""
    assert refusal(server.send(request_bytes)) == (status, error)


@pytest.mark.parametrize("target", ["http://LOCALHOST:1/live", "http://localhost/live?"])
def test_a_request_may_have_the_absolute_form(server: Process, target: str) -> None:
    """A client sends this form to a proxy; RFC 9112, 3.2.2 demands that a server accepts it."""
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    assert server.send(request.encode()).startswith(b"HTTP/1.1 200 ")


def test_the_host_of_the_absolute_form_replaces_the_field(server: Process) -> None:
    """The protection against foreign hosts applies to it."""
    request = b"GET http://evil.example HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    assert refusal(server.send(request)) == (403, "foreign_host")


BEGUN = {
    "nothing": b"",
    "half a line": b"GET /topics/a HTT",
    "half a head": b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "half a body": (b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"),
}


def test_a_request_that_does_not_arrive_is_ended(impatient_server: Process) -> None:
    """An incomplete request gets 408, and its connection is closed."""
    with contextlib.ExitStack() as stack:
        connections = {name: stack.enter_context(impatient_server.connect()) for name in BEGUN}
        for name, connection in connections.items():
            connection.sendall(BEGUN[name])
        answers = {name: refusal(read_to_end(each)) for name, each in connections.items()}

    assert answers == dict.fromkeys(BEGUN, (408, "too_slow"))


@pytest.mark.parametrize("rest", [b"", b"POST /topics/a HTT"], ids=["body", "head"])
def test_a_pipelined_request_that_does_not_arrive_is_ended(
    rest: bytes, impatient_server: Process
) -> None:
    """Its timeout begins when the request before it has been answered."""
    head = b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"
    received = impatient_server.send(
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n" + (rest or head)
    )

    assert received.startswith(b"HTTP/1.1 200 ")
    assert (b"too_slow" in received) == (not rest)  # a partial head ends with the keep-alive


def test_single_bytes_do_not_extend_the_receive_timeout(impatient_server: Process) -> None:
    """The timeout is for the whole request, not for each byte."""
    begun = time.monotonic()
    with impatient_server.connect() as connection:
        connection.settimeout(0.05)
        received = b""
        while b"}" not in received and time.monotonic() < begun + 60:
            try:
                connection.sendall(b"G")
                received += connection.recv(65_536)
            except TimeoutError:
                pass

    assert refusal(received) == (408, "too_slow")


def test_a_poll_may_wait_longer_than_a_request_may_take(impatient_server: Process) -> None:
    """The receive timeout limits the request, not the wait for the answer."""
    answer = httpx.get(f"{impatient_server.url}/topics/patient?timeout=1.2", timeout=60)

    assert answer.json()["messages"] == []


@pytest.fixture(scope="module")
def generous_server() -> Iterator[Process]:
    """A process with an answer larger than the socket buffers, and a short receive timeout."""
    patience = ["--receive-timeout", "0.5", "--heartbeat", "0.5"]
    with process(*patience, "--max-body", str(HUGE), "--keep-bytes", str(2 * HUGE)) as running:
        httpx.post(f"{running.url}/topics/huge", content=b"x" * HUGE, timeout=60)
        yield running


def test_a_client_that_does_not_read_is_disconnected(generous_server: Process) -> None:
    """The connection is closed, and its memory is freed."""
    service = psutil.Process(generous_server.process.pid)
    with generous_server.connect() as connection:
        own_port = connection.getsockname()[1]
        connection.sendall(poll("/topics/huge?timeout=0") * 2)
        connection.recv(1, socket.MSG_PEEK)  # waits until the answer begins
        while any(own_port in each.raddr[1:] for each in service.net_connections()):
            time.sleep(0.01)
        try:
            answer = read_to_end(connection)
        except ConnectionResetError:
            answer = b""

    assert len(answer) < HUGE


async def test_a_subscriber_that_does_not_read_is_disconnected(
    generous_server: Process,
) -> None:
    """It misses a ping; the service does not wait until it has read the close frame."""
    url = f"ws://127.0.0.1:{generous_server.port}/topics/huge"
    async with connect(url, compression=None) as subscriber:
        subscriber.transport.pause_reading()  # it counts as waiting since the handshake
        await waiters_reach(generous_server, 0)
        subscriber.transport.abort()


def test_the_dashboard_is_for_this_machine_by_name(server: Process) -> None:
    """Requests of a rebound host name and forwarded requests are refused."""
    page = f"{server.url}/dashboard/"

    with httpx.Client(timeout=60) as client:
        assert client.get(page).status_code == 200
        assert client.get(page, headers={"Host": "evil.example"}).status_code == 403
        assert client.get(page, headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 403


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("http://[::]:80", "http://[::1]:80"),
        ("http://10.0.0.0:80", "http://10.0.0.0:80"),
    ],
)
def test_the_printed_address_of_the_dashboard_works(
    address: str, here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the service listens on all addresses, the printed one is a loopback address."""

    def serve(*arguments: Any, **_more: Any) -> None:
        arguments[-1](address)

    monkeypatch.setattr("aiowheel.serve.serve", serve)

    assert run(["serve", "--dashboard", "--max-connections", "1"]) == 0

    assert f"the dashboard is at {here}/dashboard/\n" in capsys.readouterr().out


def test_the_command_has_the_limits_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The help must show the defaults without the extras of the class, so it repeats them."""
    given: list[Any] = []

    def serve(*arguments: Any, **_more: Any) -> None:
        given.append(arguments[0].limits)

    def allow_open_files(wanted: int) -> int:
        return wanted

    monkeypatch.setattr("aiowheel.serve.serve", serve)
    monkeypatch.setattr("aiowheel.cli.serve.allow_open_files", allow_open_files)

    assert run(["serve"]) == 0

    assert given == [Limits()]


@pytest.mark.parametrize(
    ("allowed", "connections"), [(18_100, 18_000), (18_099, 17_999), (128, 28), (64, 1)]
)
def test_connections_are_limited_to_what_the_limit_of_open_files_allows(
    allowed: int,
    connections: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Further clients then get 503; a worker does not repeat the line of its parent."""
    given: list[int] = []

    def serve(app: TopicApp, *_arguments: Any, **_more: Any) -> None:
        given.append(app.limits.connections)

    def allow_open_files(wanted: int) -> int:
        return min(wanted, allowed)

    monkeypatch.setattr("aiowheel.serve.serve", serve)
    monkeypatch.setattr("aiowheel.cli.serve.allow_open_files", allow_open_files)

    assert run(["serve"]) == 0
    printed = capsys.readouterr().err
    monkeypatch.setenv("AIOWHEEL_WORKER", "{}")
    assert run(["serve"]) == 0

    assert given == [connections] * 2
    assert capsys.readouterr().err == ""
    assert printed == (
        ""
        if connections == 18_000
        else f"aiowheel: --max-connections is {connections:,} in place of 18,000, "
        f"because the system allows {allowed:,} open files\n"
    )


WARNING = (
    "aiowheel: 0.0.0.0 is open to other machines, without tokens and without TLS; "
    "see --token and --tls-cert\n"
)


@pytest.mark.parametrize(
    ("address", "arguments", "warning"),
    [
        ("http://0.0.0.0:80", [], WARNING),
        ("http://[::]:80", [], WARNING.replace("0.0.0.0", "::")),
        ("http://127.0.0.1:80", [], ""),
        ("http://[::1]:80", [], ""),
        ("http://unix:/run/0.0.0.0:", [], ""),
        ("http://0.0.0.0:80", ["--token", "0123456789abcdef"], ""),
        ("http://0.0.0.0:80", ["--subscribe-token", "0123456789abcdef"], ""),
    ],
)
def test_a_service_that_is_open_to_all_prints_a_warning(
    address: str,
    arguments: list[str],
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The address that the service listens on decides, which systemd may have chosen."""

    def serve(*positional: Any, **_more: Any) -> None:
        positional[-1](address)

    monkeypatch.setattr("aiowheel.serve.serve", serve)

    assert run(["serve", "--max-connections", "1", *arguments]) == 0

    assert capsys.readouterr().err == warning


def test_a_service_with_tls_prints_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its operator has decided that other machines connect."""
    cert, key = made_certificate(tmp_path, "open")

    def serve(*arguments: Any, **_more: Any) -> None:
        arguments[-1]("https://0.0.0.0:1")

    monkeypatch.setattr("aiowheel.serve.serve", serve)
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]

    assert run(["serve", "--max-connections", "1", *tls]) == 0

    assert capsys.readouterr().err == ""


def test_simultaneous_disconnects_leave_nothing(server: Process) -> None:
    """This test has 200 clients; the load run has thousands."""
    crowd = [server.connect() for _ in range(200)]
    for connection in crowd:
        connection.sendall(poll("/topics/leaving?timeout=60"))
    asyncio.run(waiters_reach(server, 200))

    for connection in crowd:
        connection.close()

    asyncio.run(waiters_reach(server, 0))
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert 'aiowheel_purgatory_pending{name="topics"} 0.0' in metrics
    assert 'aiowheel_purgatory_watched{name="topics"} 0.0' in metrics


@pytest.mark.linux
def test_a_server_without_descriptors_keeps_the_connections_that_it_has() -> None:
    """Further connections wait or are closed; they are served once descriptors are free."""
    resource = pytest.importorskip("resource")
    with process() as running, running.connect() as waiting, running.connect() as publishing:
        waiting.sendall(poll("/topics/a?timeout=60"))
        publishing.sendall(poll("/health"))
        read_until(publishing, b"}")
        asyncio.run(waiters_reach(running, 1))
        used = {int(name) for name in os.listdir(f"/proc/{running.process.pid}/fd")}  # noqa: PTH208
        free = min(set(range(len(used) + 1)) - used)
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (free, hard))
        crowd = [running.connect() for _ in range(10)]
        for each in crowd:
            with contextlib.suppress(OSError):  # the server has closed it
                each.sendall(poll("/health"))

        publishing.sendall(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"
        )

        read_until(publishing, b"}")
        read_until(waiting, b'"hi"')
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        for each in crowd:
            with each, contextlib.suppress(ConnectionResetError):
                assert each.recv(65_536)[:15] in {b"", b"HTTP/1.1 200 OK"}
        assert httpx.get(f"{running.url}/health", timeout=60).status_code == 200
        assert running.stop()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_answers_all_clients_and_ends_in_order(number: int) -> None:
    """Polls get 503 with Retry-After, websockets 1012, event streams their end.

    The exit code is 0. Stderr is empty, even after a refused subscriber.
    """
    with process("--dashboard") as server:
        with pytest.raises(InvalidStatus, match="400"):
            await connect(f"ws://127.0.0.1:{server.port}/topics/a?since=-1")
        async with (
            httpx.AsyncClient(timeout=60) as client,
            connect(f"ws://127.0.0.1:{server.port}/topics/a") as socket,
        ):
            polls = [
                asyncio.create_task(client.get(f"{server.url}/topics/a?timeout=60"))
                for _ in range(30)
            ]
            streams = {"/dashboard/events": b"", "/topics/a": b""}

            async def follow(path: str) -> None:
                accept = {"Accept": "text/event-stream"}
                async with client.stream("GET", server.url + path, headers=accept) as answer:
                    async for chunk in answer.aiter_bytes():
                        streams[path] += chunk

            following = [asyncio.create_task(follow(path)) for path in streams]
            await waiters_reach(server, 32)
            snapshot = b'data: {"process"'
            while snapshot not in streams["/dashboard/events"] or not streams["/topics/a"]:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)

            code, errors = await asyncio.to_thread(server.stop, number)
            answers = await asyncio.gather(*polls)
            await asyncio.gather(*following)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()

    assert (code, errors) == (0, "")
    assert {answer.status_code for answer in answers} == {503}
    assert all("retry-after" in answer.headers for answer in answers)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert streams["/topics/a"].startswith(b"retry: ")


def test_a_signal_refuses_a_request_that_has_not_arrived() -> None:
    """The client gets 503 at once, because its message would be refused in any case."""
    partial = b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"
    with process() as server, server.connect() as connection:
        connection.sendall(partial)
        httpx.get(f"{server.url}/health", timeout=60)  # the service has read the part before this

        assert server.stop() == (0, "")
        answer = read_to_end(connection)

    assert refusal(answer) == (503, "shutting_down")
    assert b"\r\nretry-after: " in answer.lower()


@pytest.mark.parametrize(
    ("signals", "errors"),
    [(1, "Cancel 1 running task(s), timeout graceful shutdown exceeded\n"), (2, "")],
)
def test_a_client_that_does_not_read_does_not_prevent_the_end(signals: int, errors: str) -> None:
    """Its connection ends after some seconds, or at the second signal, without a traceback."""
    sizes = ["--max-body", str(HUGE), "--keep-bytes", str(3 * HUGE)]
    with process(*sizes, "--receive-timeout", "60") as server, server.connect() as connection:
        for _ in range(2):  # the stream waits with the second message
            httpx.post(f"{server.url}/topics/huge", content=b"x" * HUGE, timeout=60)
        connection.sendall(
            b"GET /topics/huge HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        )
        read_until(connection, b"id: ")
        if signals == 2:
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(ConnectionError):
                while True:  # until the first signal has closed the listening socket
                    server.connect().close()

        assert server.stop() == (0, errors)


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert run(["serve", "--port", str(port)]) == 1

    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"aiowheel: cannot listen on 127.0.0.1 port {port}: Address already in use"


@pytest.mark.parametrize(
    "arguments", [["--port", "70000"], ["--max-topics", "0"], ["--heartbeat", "nan"], ["--nope"]]
)
def test_bad_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2."""
    assert run(["serve", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
