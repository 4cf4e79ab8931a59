"""`aiowheel serve`: topics over long polls, websockets and server-sent events. Rank 5."""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

# The standard library itself starts its processes with it, for example in multiprocessing.
from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit
from zipfile import is_zipfile

import typer

from aiowheel._open_files import allow_open_files
from aiowheel._outputs import drop_standard_output
from aiowheel._signals import handled_by
from aiowheel.cli._duration import duration
from aiowheel.cli._options import number, path_of, refuse
from aiowheel.errors import AiowheelError, BadInputError

if TYPE_CHECKING:
    from aiowheel.serve import Access

_OTHER_FILES = 100  # open files of the process besides the connections up to the limit
_UNIX = "http://unix:", "https://unix:"  # the service's address of a Unix socket


def serve(
    context: typer.Context,
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, number(min=0, max=65_535, help="TCP port; 0 chooses a free one.")] = 8080,
    unix: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Unix socket to listen on, in place of --host and --port.",
            parser=path_of,
        ),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate chain in PEM, for https.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Private key, if not in --tls-cert.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AIOWHEEL_TOKEN",
            metavar="TOKEN",
            help="Token for all requests; @FILE reads tokens from a file.",
        ),
    ] = None,
    publish_token: Annotated[
        str | None,
        typer.Option(
            envvar="AIOWHEEL_PUBLISH_TOKEN",
            metavar="TOKEN",
            help="Token to publish and remove; or @FILE.",
        ),
    ] = None,
    subscribe_token: Annotated[
        str | None,
        typer.Option(
            envvar="AIOWHEEL_SUBSCRIBE_TOKEN",
            metavar="TOKEN",
            help="Token to poll and subscribe; or @FILE.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Allow web pages of this origin; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name of the service; may be repeated."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="AIOWHEEL_STORE",
            metavar="URL",
            help="Keep topics in sqlite:///PATH, postgresql://... or redis://...",
        ),
    ] = None,
    workers: Annotated[
        int, number(min=1, help="Number of processes; more than 1 need --store.")
    ] = 1,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Serve the dashboard at /dashboard/, for this machine only."
        ),
    ] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request on stderr.")
    ] = False,
    max_connections: Annotated[
        int, number(min=1, help="Maximum number of open connections.")
    ] = 18_000,
    max_topics: Annotated[int, number(min=1, help="Maximum number of topics.")] = 10_000,
    max_name: Annotated[
        int,
        number(min=1, help="Maximum length of a topic's name, in characters."),
    ] = 200,
    max_body: Annotated[int, number(min=1, help="Maximum size of a message, in bytes.")] = 65_536,
    max_waiters: Annotated[int, number(min=1, help="Maximum number of waiting requests.")] = 16_000,
    max_waiters_per_client: Annotated[
        int,
        number(min=1, help="Maximum number of waiting requests per client address."),
    ] = 10_000,
    max_timeout: Annotated[
        float, duration(least=1, help="Maximum duration of a poll; whole seconds.")
    ] = 120,
    keep_seconds: Annotated[
        float,
        duration(least=0.1, most=1e9, help="Maximum age of messages and of unused topics."),
    ] = 86_400,
    keep: Annotated[int, number(min=1, help="Maximum number of messages kept per topic.")] = 1_000,
    keep_bytes: Annotated[
        int,
        number(min=1, help="Maximum size of the messages kept per topic, in bytes."),
    ] = 1_048_576,
    keep_bytes_in_all: Annotated[
        int,
        number(min=1, help="Maximum size of the messages kept of all topics, in bytes."),
    ] = 268_435_456,
    heartbeat: Annotated[
        float, duration(least=0.1, most=3_600, help="Interval of heartbeats to subscribers.")
    ] = 20,
    receive_timeout: Annotated[
        float, duration(least=0.1, most=3_600, help="Maximum time for a request to arrive.")
    ] = 10,
) -> None:
    """Serve named topics to publishers, long polls and subscribers.

    Topics are kept in memory, or with --store in a database. SIGTERM and Ctrl+C stop the service;
    it then answers waiting requests with 503 and Retry-After. SIGHUP reads the files of tokens and
    of the certificate again. With --workers, SIGHUP replaces all workers by new ones, which run the
    installed code; no request is refused during that time.

    \b
    Example:
      aiowheel serve --port 8080 --dashboard
      curl -d 'hello' http://127.0.0.1:8080/topics/news
      curl 'http://127.0.0.1:8080/topics/news?since=1&timeout=30'
    """
    # A supervisor may send SIGHUP before the service handles it, which would end the process.
    if sys.platform != "win32":
        context.with_resource(handled_by(lambda _number, _frame: None, signal.SIGHUP))
    from aiowheel import serve as service
    from aiowheel.serve._store_address import LONGEST_NAME

    if not max_timeout.is_integer():
        raise BadInputError(f"--max-timeout must be whole seconds, got {max_timeout:g}")
    if tls_key is not None and tls_cert is None:
        raise BadInputError("--tls-key needs --tls-cert")
    if unix is not None:
        given = {name: _is_given(context, name) for name in ("host", "port")}
        refuse({f"--{name}": value for name, value in given.items()}, "cannot be used with --unix")
    if workers > 1 and store is None:
        raise BadInputError(f"--workers {workers} needs --store, by which workers share topics")

    if store is not None and max_name > LONGEST_NAME:
        legal = f"from 1 to {LONGEST_NAME} with --store"
        raise BadInputError(f"--max-name must be {legal}, got {max_name}")

    def access() -> "Access":
        shared = _tokens("--token", token)
        names = list(allow_host or [])
        if host and ":" not in host:  # not an IPv6 address
            names.append(host)
        return service.Access(
            hosts=frozenset(each.lower() for each in names),
            origins=frozenset(each.lower().rstrip("/") for each in allow_origin or []),
            publish_tokens=shared | _tokens("--publish-token", publish_token),
            subscribe_tokens=shared | _tokens("--subscribe-token", subscribe_token),
        )

    limits = service.Limits(
        connections=_allowed_connections(max_connections, is_quiet=service.is_worker()),
        topics=max_topics,
        name_length=max_name,
        body_bytes=max_body,
        waiters=max_waiters,
        waiters_per_client=max_waiters_per_client,
        timeout=int(max_timeout),
        heartbeat=heartbeat,
        receive_timeout=receive_timeout,
        kept_seconds=keep_seconds,
        kept_messages=keep,
        kept_bytes=keep_bytes,
        kept_bytes_in_all=keep_bytes_in_all,
    )
    admission = access()
    app = service.TopicApp(
        limits, access=admission, dashboard=dashboard, access_log=access_log, store=store
    )
    try:
        certificate = None if tls_cert is None else service.Certificate(tls_cert, tls_key)
    except AiowheelError as error:
        raise BadInputError(f"--tls-cert: {error}") from error
    context.with_resource(_logs_on_stderr(logging.INFO if access_log else logging.WARNING))

    def ready(address: str) -> None:
        _announce(address, dashboard=dashboard)
        if not (admission.publish_tokens or admission.subscribe_tokens or certificate):
            _warn_of_clients(address)

    def reload() -> None:
        renewed = access()
        if certificate is not None:
            certificate.load()
        app.access = renewed

    service.serve(
        app,
        host,
        port,
        ready,
        unix=None if unix is None else str(unix),
        certificate=certificate,
        reload=reload,
        workers=workers,
        command=_same_command(context.obj),
        notice=_notice,
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether the command line has the option of the parameter *name*."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _notice(line: str) -> None:
    """Print *line* on stderr, if possible."""
    with suppress(OSError):  # the reader of the log may have ended, or its disk may be full
        print(f"aiowheel: {line}", file=sys.stderr, flush=True)


def _announce(address: str, *, dashboard: bool) -> None:
    """Print how clients reach the service at *address*; its start does not depend on it."""
    lines = _announcement(address, dashboard=dashboard)
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:  # the reader may have ended, or the disk may be full
        drop_standard_output()
        _notice(f"standard output: {error.strerror}; {lines[0]}")


def _announcement(address: str, *, dashboard: bool) -> list[str]:
    """Return the lines that say how clients reach the service at *address*."""
    if address.startswith(_UNIX):
        scheme, _, path = address.removesuffix(":").partition("://unix:")
        option = "--abstract-unix-socket" if path.startswith("@") else "--unix-socket"
        curl = f"curl {option} {shlex.quote(path.removeprefix('@'))} {scheme}://localhost"
        lines = [f"serving topics: {curl}/topics/NAME"]
        if dashboard:
            lines.append(f"the dashboard: {curl}/dashboard/")
        return lines
    lines = [f"serving topics at {address}/topics/NAME"]
    if dashboard:
        # The dashboard requires a host name of this machine; 0.0.0.0 and [::] are none.
        here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        lines.append(f"the dashboard is at {here}/dashboard/")
    return lines


def _warn_of_clients(address: str) -> None:
    """Print a warning if clients on other machines reach *address*."""
    host = urlsplit(address).hostname
    if address.startswith(_UNIX) or host is None or ip_address(host).is_loopback:
        return
    warning = f"{host} is open to other machines, without tokens and without TLS"
    _notice(f"{warning}; see --token and --tls-cert")


def _same_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs this command in a new process, in the mode of this one."""
    if getattr(sys, "frozen", False):  # the executable is the program, and no Python
        return [sys.executable, *sys.argv[1:]]
    # What follows the options of Python in its command line: `FILE ...` or `MODULE ...`.
    program = sys.orig_argv[-len(sys.argv) :]
    # An archive or a folder, for example of shiv, may be the only place that has the package.
    if program and _is_program(program[0]):
        return [sys.executable, *sys.orig_argv[1:]]
    flags = _args_from_interpreter_flags()
    # Python's `-m` adds the current folder to the module path; `-P` prevents that.
    safe_path = ["-P"]
    with suppress(FileNotFoundError):  # the current folder was removed
        if str(Path.cwd()) in sys.path:
            safe_path = []
    return [sys.executable, *flags, *safe_path, "-m", "aiowheel", *arguments]


def _is_program(path: str) -> bool:
    """Return whether Python can run *path* as a zip archive, or as a folder with `__main__.py`."""
    # `-c` has a program's text in this place, which `Path.is_file` refuses if it is long.
    return is_zipfile(path) or os.path.isfile(f"{path}/__main__.py")  # noqa: PTH113


def _tokens(option: str, text: str | None) -> frozenset[str]:
    """Return the token in *text*, or the tokens in the file that `@FILE` names.

    *text* is the value of *option* or of its environment variable.
    """
    if text is None:
        variable = "AIOWHEEL" + option.removeprefix("-").replace("-", "_").upper()
        if os.environ.get(variable) == "":  # typer takes it for a variable that is not set
            raise BadInputError(f"{variable} must hold a token or not be set, got an empty text")
        return frozenset()
    if not text.startswith("@"):
        return frozenset([text])
    from aiowheel.serve._access import check_token
    from aiowheel.serve._setting_files import read_setting

    path = text[1:]
    try:
        lines = read_setting(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadInputError(f"{option}: cannot read {path}: {reason}") from error
    tokens: set[str] = set()
    for at, line in enumerate(lines, start=1):
        for token in line.split():
            try:
                check_token(token)
            except BadInputError as error:
                raise BadInputError(f"{option}: {path}, line {at}: {error}") from None
            tokens.add(token)
    if not tokens:  # without this check, an empty file would allow every client
        raise BadInputError(f"{option}: {path} must hold a token on each line, got none")
    return frozenset(tokens)


@contextmanager
def _logs_on_stderr(level: int) -> Generator[None]:
    """Write the log events of *level* and above on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("aiowheel")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _allowed_connections(wanted: int, *, is_quiet: bool) -> int:
    """Raise the limit of open files for *wanted* connections; return how many it allows.

    A process without free descriptors refuses connections without an answer, and asyncio logs each
    attempt to accept one. Unless *is_quiet*, a notice is printed if fewer are allowed.
    """
    files = allow_open_files(wanted + _OTHER_FILES)
    allowed = max(1, min(wanted, files - _OTHER_FILES))
    if allowed < wanted and not is_quiet:
        _notice(
            f"--max-connections is {allowed:,} in place of {wanted:,}, because the system allows "
            f"{files:,} open files"
        )
    return allowed
