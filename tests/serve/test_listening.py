"""The sockets of `aiowheel serve`, its limit of connections, and its access log."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from websockets.asyncio.client import connect

import aiowheel
from aiowheel.cli import run
from aiowheel.errors import AiowheelError
from aiowheel.serve import Certificate, Limits, TopicApp
from aiowheel.serve import _listen as listen
from aiowheel.serve._listen import listeners
from aiowheel.serve._server import _config
from tests._certificates import made_certificate

from .conftest import Process, process, read_to_end

pytestmark = [pytest.mark.realtime, pytest.mark.one_build]

OLD, NEW = "old-token-0123456789", "new-token-0123456789"
#: A program that passes an open socket to the service, as systemd does, and becomes the service.
HANDOVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "aiowheel", "serve", "--port", "1"])
"""


def line_of(server: Process) -> str:
    """Return the next line that the process writes to stderr."""
    assert server.process.stderr is not None
    return server.process.stderr.readline().rstrip("\n")


async def test_https_and_wss_are_served(tmp_path: Path) -> None:
    """A client that trusts the certificate can publish and subscribe; another client cannot."""
    cert, key = made_certificate(tmp_path, "served")
    trusting = ssl.create_default_context(cafile=str(cert))
    with process("--tls-cert", str(cert), "--tls-key", str(key)) as server:
        url = server.url.replace("http:", "https:")
        async with httpx.AsyncClient(verify=trusting, timeout=60) as client:
            answer = await client.post(f"{url}/topics/a", content="x")
        address = f"wss://127.0.0.1:{server.port}/topics/a"
        async with connect(address, ssl=trusting) as subscriber:
            news = json.loads(await subscriber.recv())
        async with httpx.AsyncClient(timeout=60) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{url}/live")
        code, errors = await asyncio.to_thread(server.stop)

    assert (answer.status_code, news["version"]) == (201, 1)
    assert (code, errors) == (0, "")


@pytest.mark.posix
def test_a_hangup_renews_certificate_and_tokens(tmp_path: Path) -> None:
    """No topic and no connection is lost; settings that cannot be used are reported and ignored."""
    cert, key = made_certificate(tmp_path, "first")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{OLD}\n")
    both = ssl.create_default_context(cafile=str(cert))
    arguments = ["--tls-cert", str(cert), "--tls-key", str(key), "--publish-token", f"@{tokens}"]
    with process(*arguments) as server:
        url = server.url.replace("http:", "https:")

        def published(token: str, client: httpx.Client) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return client.post(f"{url}/topics/a", content="x", headers=headers).status_code

        with httpx.Client(verify=both, timeout=60) as early:
            assert (published(OLD, early), published(NEW, early)) == (201, 401)

            tokens.write_text("")
            server.process.send_signal(signal.SIGHUP)
            assert "must hold a token on each line, got none" in line_of(server)
            assert published(OLD, early) == 201

            tokens.write_text(f"{OLD}\n{NEW}\n")
            other_cert, other_key = made_certificate(tmp_path, "second")
            cert.write_bytes(other_cert.read_bytes())
            server.process.send_signal(signal.SIGHUP)
            assert "not reloaded: cannot use the certificate" in line_of(server)
            assert published(NEW, early) == 401

            key.write_bytes(other_key.read_bytes())
            server.process.send_signal(signal.SIGHUP)
            assert line_of(server) == "aiowheel: reloaded"
            assert (published(OLD, early), published(NEW, early)) == (
                201,
                201,
            )  # over one connection

        both.load_verify_locations(str(other_cert))
        shown = ssl.get_server_certificate(("127.0.0.1", server.port))
        assert shown.split() == other_cert.read_text().split()
        with httpx.Client(verify=both, timeout=60) as late:
            assert late.get(f"{url}/topics/a?timeout=0").json()["version"] == 4


def renew(tokens: Path, server: Process) -> None:
    """Write another token into the file, and return once the service accepts it."""
    tokens.write_text(NEW)
    server.process.send_signal(signal.SIGHUP)
    with httpx.Client(timeout=60, headers={"Authorization": f"Bearer {NEW}"}) as client:
        while client.post(f"{server.url}/topics/a", content="x").status_code == 401:
            time.sleep(0.01)


@pytest.mark.posix
def test_the_service_continues_if_the_reader_of_its_notices_ends(tmp_path: Path) -> None:
    """A reload, or the death of a worker, is then not reported."""
    tokens = tmp_path / "tokens"
    tokens.write_text(OLD)
    with process("--token", f"@{tokens}") as server:
        assert server.process.stderr is not None
        server.process.stderr.close()
        renew(tokens, server)
        server.process.terminate()

        assert server.process.wait(60) == 0


@pytest.mark.posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_the_service_continues_if_the_disk_of_its_log_is_full(workers: int, tmp_path: Path) -> None:
    """The tokens are renewed, although no notice can be written."""
    tokens = tmp_path / "tokens"
    tokens.write_text(OLD)
    store = ["--workers", str(workers), "--store", f"sqlite:///{tmp_path / 'topics.db'}"]
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        process("--token", f"@{tokens}", *store, stderr=full) as server,
    ):
        renew(tokens, server)
        server.process.terminate()
        server.process.wait(60)


@pytest.mark.posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_the_warning_of_other_machines_is_not_needed() -> None:
    """The service starts, although the warning cannot be written."""
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        process("--host", "0.0.0.0", stderr=full) as server,
    ):
        assert httpx.get(f"{server.url}/live", timeout=60).status_code == 200


@pytest.mark.posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("workers", [1, 2])
def test_the_service_starts_if_its_announcement_cannot_be_written(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason and the address go to stderr."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # at its end, Python writes its buffer
    store = ["--workers", str(workers), "--store", f"sqlite:///{tmp_path / 'topics.db'}"]
    command = [sys.executable, "-m", "aiowheel", "serve", "--port", "0", "--dashboard", *store]
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True) as child,
    ):
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            found = re.fullmatch(
                r"aiowheel: standard output: No space left on device; "
                r"serving topics at (http://127\.0\.0\.1:\d+)/topics/NAME\n",
                line,
            )
            assert found, line
            assert httpx.get(f"{found[1]}/live", timeout=60).status_code == 200
            child.terminate()
            _, errors = child.communicate(timeout=60)
            assert (child.returncode, errors) == (0, "")
        finally:
            child.kill()


def test_an_ipv4_client_of_an_ipv6_socket_has_its_own_address() -> None:
    """A proxy on this machine is trusted; its clients would otherwise count as one."""
    try:
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True).close()
    except (OSError, ValueError):
        pytest.skip("the system has no sockets for both versions of IP")
    limits = ["--max-waiters-per-client", "1", "--access-log"]
    with process("--host", "::", *limits) as server:
        url = f"http://127.0.0.1:{server.port}/topics/a?timeout=0"
        with httpx.Client(timeout=60) as client:
            client.get(url)
            client.get(url, headers={"X-Forwarded-For": "192.0.2.1"})
        _, errors = server.stop()

    seen = re.findall(r"client='([^']+)'", errors)
    assert seen == ["127.0.0.1", "192.0.2.1"]


@pytest.mark.posix
def test_a_removed_folder_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a deployment that has replaced the folder of the shell."""
    folder = tmp_path / "release"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(Path(aiowheel.__file__).parent.parent))
    monkeypatch.chdir(folder)
    folder.rmdir()

    with process() as server:
        assert httpx.get(f"{server.url}/live", timeout=60).status_code == 200


@pytest.mark.posix
def test_a_failure_of_the_store_is_a_line_on_stderr(tmp_path: Path) -> None:
    """Its reason is in no answer; one line is written for a series of failures."""
    path = tmp_path / "topics.db"
    with process("--store", f"sqlite:///{path}") as server:
        with httpx.Client(timeout=60) as client:
            client.post(f"{server.url}/topics/a", content="1")
            with closing(sqlite3.connect(path)) as file:
                file.execute("DROP TABLE aiowheel_messages")
            answers = [client.post(f"{server.url}/topics/a", content="2") for _ in range(2)]
        code, errors = server.stop()

    assert [answer.status_code for answer in answers] == [503, 503]
    assert code == 0
    (line,) = errors.splitlines()
    assert "aiowheel.topic_store_failed operation='publish' error=" in line
    assert "aiowheel_messages" in line


def test_an_unusable_certificate_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for a wrong key; after a failed reload the earlier certificate still works."""
    cert, key = made_certificate(tmp_path, "good")
    _, wrong = made_certificate(tmp_path, "wrong")

    assert run(["serve", "--max-connections", "1", "--tls-cert", str(tmp_path / "no.pem")]) == 2
    assert capsys.readouterr().err.startswith("aiowheel: --tls-cert: cannot use the certificate")
    assert run(["serve", "--max-connections", "1", "--tls-key", str(key)]) == 2
    with pytest.raises(AiowheelError, match="cannot use the certificate"):
        Certificate(str(cert), str(wrong))
    certificate = Certificate(str(cert), str(key))
    good_key = key.read_bytes()
    key.write_bytes(wrong.read_bytes())
    with pytest.raises(AiowheelError, match="MISMATCH"):
        certificate.load()
    key.write_bytes(good_key)
    certificate.load()


@contextlib.contextmanager
def listening_on(path: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Run `aiowheel serve --unix`, and wait until it listens."""
    command = [sys.executable, "-m", "aiowheel", "serve", "--unix", str(path), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line == (
                f"serving topics: curl --unix-socket {path} http://localhost/topics/NAME\n"
            )
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def test_a_unix_socket_is_listened_on(short_path: Path) -> None:
    """The path is removed at the end; the path of a killed process is reused."""
    path = short_path / "serve.sock"
    transport = httpx.HTTPTransport(uds=str(path))
    with listening_on(path, "--access-log") as child:
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            assert client.post("/topics/a", content="x").status_code == 201
            assert client.get("/topics/a").json()["version"] == 1
        with pytest.raises(AssertionError), listening_on(path):
            pass  # a path in use is not taken over
        assert path.exists()
        child.kill()
        child.wait(30)
        assert child.stderr is not None
        assert "client='127.0.0.1' method='POST' path='/topics/a' status=201" in child.stderr.read()
    assert stat.S_ISSOCK(path.stat().st_mode)
    with listening_on(path) as child:
        child.terminate()
        assert child.wait(30) == 0
    assert not path.exists()


@pytest.mark.posix
async def test_websockets_are_served_on_a_unix_socket(short_path: Path) -> None:
    """A client of a Unix socket has no address, and counts as a client of this machine."""
    path = short_path / "serve.sock"
    with listening_on(path), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        uri = "ws://localhost/topics/a"
        async with connect(uri, sock=connection) as subscriber:
            async with httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=str(path)),
                base_url="http://localhost",
                timeout=60,
            ) as client:
                await client.post("/topics/a", content="x")
            assert json.loads(await subscriber.recv())["version"] == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--port", "8080"), ("--host", "127.0.0.1")], ids=["port", "host"]
)
def test_a_unix_socket_has_no_host_and_no_port(
    option: str, value: str, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the default value is refused: the service would ignore it."""
    assert run(["serve", "--unix", str(short_path / "serve.sock"), option, value]) == 2

    assert capsys.readouterr().err == f"aiowheel: {option} cannot be used with --unix\n"


@pytest.mark.parametrize(
    ("name", "reason"), [("folder/serve.sock", "No such file"), ("file", "Address already in use")]
)
def test_a_path_that_cannot_be_listened_on_is_one_line(
    short_path: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    """A file that is not a socket is left alone."""
    (short_path / "file").write_text("precious")

    assert run(["serve", "--max-connections", "1", "--unix", str(short_path / name)]) == 1

    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"aiowheel: cannot listen on {short_path / name}: {reason}")
    assert (short_path / "file").read_text() == "precious"


@contextlib.contextmanager
def handed_over(listener: socket.socket) -> Generator[Process]:
    """Run `aiowheel serve` on an open socket, and stop it at the end."""
    number = listener.fileno()
    command = [sys.executable, "-c", HANDOVER, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[number]) as child:
        try:
            assert child.stdout is not None
            found = re.search(r":(\d+)/topics/", child.stdout.readline())
            assert found is not None
            yield Process(child, int(found[1]))
            child.terminate()
            assert child.wait(60) == 0
        finally:
            if child.poll() is None:
                child.kill()


def test_a_restart_on_an_inherited_socket_refuses_no_client() -> None:
    """The socket replaces `--port`; a client that connects during the restart is served later."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with handed_over(listener) as service:
            assert service.port == port
            assert httpx.get(f"{service.url}/live", timeout=60).status_code == 200
        with socket.create_connection(("127.0.0.1", port), timeout=60) as early:
            early.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            with handed_over(listener):
                assert read_to_end(early).startswith(b"HTTP/1.1 200 ")


@pytest.mark.linux
def test_an_inherited_abstract_socket_is_served() -> None:
    """Its name begins with a null character, which the shown command leaves out."""
    name = f"aiowheel-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        number = listener.fileno()
        command = [sys.executable, "-c", HANDOVER, str(number)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, pass_fds=[number]
        ) as child:
            try:
                assert child.stdout is not None
                curl = f"curl --abstract-unix-socket {name} http://localhost"
                assert child.stdout.readline() == f"serving topics: {curl}/topics/NAME\n"
                transport = httpx.HTTPTransport(uds=f"\0{name}")
                with httpx.Client(transport=transport, timeout=60) as client:
                    assert client.get("http://localhost/live").status_code == 200
            finally:
                child.terminate()
        assert child.returncode == 0


@pytest.mark.posix
def test_a_path_may_begin_like_the_name_of_an_abstract_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is then shown in a form that no client takes for such a name."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("@x")

        assert listen.address_of(listener, tls=False) == "http://unix:./@x:"


@pytest.mark.posix
def test_a_refused_descriptor_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram socket cannot be listened on."""
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        number = os.dup(datagrams.fileno())
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setattr(listen, "_FIRST_INHERITED", number)
        with pytest.raises(AiowheelError, match="does not listen"), listeners("", 0, None, 1.0):
            pass

        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


@pytest.mark.parametrize(
    ("count", "text"), [("x", "LISTEN_FDS must be a number of sockets"), ("1", "is no socket")]
)
def test_an_inherited_descriptor_that_does_not_listen_is_one_line(count: str, text: str) -> None:
    """The variables are removed, because they are for this process alone."""
    program = "import os, sys\nfrom aiowheel.cli import run\n"
    program += f"os.environ |= {{'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': {count!r}}}\n"
    program += "os.dup2(os.open(os.devnull, os.O_RDONLY), 3)\n"
    program += "code = run(['serve', '--max-connections', '1'])\n"
    program += "sys.exit(code if not {'LISTEN_PID', 'LISTEN_FDS'} & set(os.environ) else 9)"

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == 1, ended.stderr
    assert text in ended.stderr.splitlines()[-1]


def test_the_server_has_the_limits_of_its_application() -> None:
    """They are no argument of the server, which could have other ones."""
    limits = Limits(connections=7, heartbeat=3.0, receive_timeout=2.0)
    app = TopicApp(limits)
    config = _config(app, None)

    assert app.limits is limits
    assert (config.ws_ping_interval, config.ws_ping_timeout) == (3.0, 3.0)
    assert config.http.receive_timeout == 2.0  # type: ignore[union-attr]
    assert config.http.most_connections == 7  # type: ignore[union-attr]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's options of a socket")
def test_every_connection_is_bounded_in_the_kernel() -> None:
    """The limits concern unsent data and the time without acknowledgements."""
    with listeners("127.0.0.1", 0, None, 20.0) as (listener,):
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            listener.setblocking(True)
            accepted, _ = listener.accept()
            with accepted:
                options = [socket.TCP_NOTSENT_LOWAT, socket.TCP_USER_TIMEOUT]
                values = [accepted.getsockopt(socket.IPPROTO_TCP, each) for each in options]

    assert values == [65_536, 20_000]


def test_connections_are_bounded() -> None:
    """A request above the limit gets 503, and no probe does; a closed connection makes room."""
    with process("--max-connections", "3", "--access-log") as server:
        crowd = [server.connect() for _ in range(3)]
        request = b"GET /topics/a?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for connection in crowd:
            connection.sendall(request)
        head, _, body = server.send(request).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: " in head
        assert json.loads(body)["error"] == "too_many_connections"
        assert "aiowheel.connection_refused" in line_of(server)
        for path in ("live", "health", "metrics"):
            assert httpx.get(f"{server.url}/{path}", timeout=60).status_code == 200

        crowd[0].close()
        while True:  # the server notices the end of the connection with a delay
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{server.url}/topics/a?timeout=0", timeout=60).status_code == 200:
                    break
            time.sleep(0.01)
        for connection in crowd:
            connection.close()


def test_requests_are_logged_when_they_end() -> None:
    """The log is off by default, and never contains the query or a token."""
    token = "secret-0123456789"
    with process("--access-log", "--subscribe-token", token) as server:
        headers = {"Authorization": f"Bearer {token}"}
        httpx.get(f"{server.url}/topics/a?timeout=0", headers=headers, timeout=60)
        httpx.get(f"{server.url}/topics/a?timeout=0", timeout=60)
        _, errors = server.stop()

    first, second = errors.splitlines()
    assert "aiowheel.request client='127.0.0.1' method='GET' path='/topics/a' status=200" in first
    assert "status=401" in second
    assert "timeout=0" not in errors
    assert token not in errors


def test_a_token_can_come_from_the_environment() -> None:
    """The token is then not visible in the list of processes."""
    environment = os.environ | {"AIOWHEEL_TOKEN": OLD}
    with process(environment=environment) as server:
        stranger = httpx.get(f"{server.url}/topics/a?timeout=0", timeout=60)
        headers = {"Authorization": f"Bearer {OLD}"}
        friend = httpx.get(f"{server.url}/topics/a?timeout=0", headers=headers, timeout=60)
        publisher = httpx.post(f"{server.url}/topics/a", content="x", headers=headers, timeout=60)
        live = httpx.get(f"{server.url}/live", timeout=60)

    assert [each.status_code for each in (stranger, friend, publisher, live)] == [
        401,
        200,
        201,
        200,
    ]


@pytest.mark.parametrize(
    "variable", ["AIOWHEEL_TOKEN", "AIOWHEEL_PUBLISH_TOKEN", "AIOWHEEL_SUBSCRIBE_TOKEN"]
)
def test_an_empty_token_in_the_environment_is_refused(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands for a secret that is missing, so the service must not be open to every client."""
    monkeypatch.setenv(variable, "")
    monkeypatch.setattr("aiowheel.serve.serve", Mock())

    assert run(["serve", "--max-connections", "1"]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"aiowheel: {variable} must hold a token or not be set, got an empty text"


def test_the_number_of_workers_of_other_servers_is_ignored() -> None:
    """Hosts set this variable for gunicorn and uvicorn."""
    with process(environment=os.environ | {"WEB_CONCURRENCY": "auto"}) as server:
        assert server.stop() == (0, "")


def test_a_bad_token_of_a_file_is_named_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And by its option: a service may have three files of tokens. The token is not shown."""
    (tmp_path / "tokens").write_text(f"{OLD}\n\nshort\n")

    assert run(["serve", "--publish-token", f"@{tmp_path / 'tokens'}"]) == 2

    legal = "tokens must be at least 16 of A-Z a-z 0-9 . _ ~ + / -, got 5 characters"
    place = f"--publish-token: {tmp_path / 'tokens'}, line 3"
    assert capsys.readouterr().err == f"aiowheel: {place}: {legal}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--token", "short"], "tokens must be at least 16"),
        (["--token", "@/no/such/file"], "--token: cannot read /no/such/file"),
        (["--allow-origin", "a.example"], "origins must be SCHEME://HOST"),
        (["--allow-host", "http://a"], "hosts must be a host name"),
        (["--keep-seconds", "nan"], "keep-seconds"),
        (["--max-connections", "0"], "max-connections"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2."""
    assert run(["serve", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


@pytest.mark.posix
def test_sighup_during_the_start_does_not_end_the_service(tmp_path: Path) -> None:
    """A supervisor may take the process for started before its handlers are set."""
    pipe = tmp_path / "tokens"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "aiowheel", "serve", "--port", "0", "--token", f"@{pipe}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            with pipe.open("w") as tokens:  # returns once the command reads its tokens
                child.send_signal(signal.SIGHUP)
                tokens.write("a-token-of-16-characters")
            assert child.stdout is not None
            line = child.stdout.readline()
        finally:
            child.terminate()

    assert line.startswith("serving topics at ")
