"""`aiowheel serve`: named topics over long polls and websockets. Rank 5."""

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from aiowheel.errors import MissingExtraError

_EXTRA_OF = {
    "starlette": "web",
    "uvicorn": "web",
    "websockets": "web",
    "prometheus_client": "metrics",
}
_OTHER_FILES = 100  # what the process has open beside connections


def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: one that is free.")] = 8080,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Show the wheels at /dashboard, to this machine only."),
    ] = False,
    max_topics: Annotated[int, typer.Option(min=1, help="Topics at once.")] = 10_000,
    max_name: Annotated[int, typer.Option(min=1, help="Characters of a topic's name.")] = 200,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 65_536,
    max_waiters: Annotated[int, typer.Option(min=1, help="Requests that wait at once.")] = 16_000,
    max_waiters_per_client: Annotated[
        int, typer.Option(min=1, help="The same of one address.")
    ] = 10_000,
    max_timeout: Annotated[int, typer.Option(min=1, help="Seconds of the longest poll.")] = 120,
    keep: Annotated[int, typer.Option(min=1, help="Messages kept of a topic.")] = 1_000,
    keep_bytes: Annotated[int, typer.Option(min=1, help="Bytes kept of a topic.")] = 1_048_576,
    keep_bytes_in_all: Annotated[
        int, typer.Option(min=1, help="Bytes kept of all topics.")
    ] = 268_435_456,
    heartbeat: Annotated[
        float, typer.Option(min=0.1, max=3_600, help="Seconds between a subscriber's heartbeats.")
    ] = 20.0,
    receive_timeout: Annotated[
        float, typer.Option(min=0.1, max=3_600, help="Seconds for a request to arrive.")
    ] = 10.0,
) -> None:
    """Serve named topics: publish, long-poll, subscribe. All in memory, nobody is asked who it is.

    Stops at SIGTERM or Ctrl+C: whoever waits then is answered with 503 and Retry-After.

    \b
    Example:
      aiowheel serve --port 8080 --dashboard
      curl -d 'hello' http://127.0.0.1:8080/topics/news
      curl 'http://127.0.0.1:8080/topics/news?since=1&timeout=30'
    """
    for package, extra in _EXTRA_OF.items():
        if find_spec(package) is None:
            raise MissingExtraError(extra)

    from aiowheel import serve as service

    limits = service.Limits(
        topics=max_topics,
        name_length=max_name,
        body_bytes=max_body,
        waiters=max_waiters,
        waiters_per_client=max_waiters_per_client,
        timeout=max_timeout,
        heartbeat=heartbeat,
        receive_timeout=receive_timeout,
        kept_messages=keep,
        kept_bytes=keep_bytes,
        kept_bytes_in_all=keep_bytes_in_all,
    )
    _allow_files(max_waiters + _OTHER_FILES)
    app = service.TopicApp(limits, dashboard=dashboard)

    def ready(address: str) -> None:
        print(f"serving topics at {address}/topics/NAME", flush=True)
        if dashboard:
            # Shown to this machine only, and asked for by a name of it: all addresses are none.
            here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            print(f"the dashboard is at {here}/dashboard/", flush=True)

    service.serve(app, limits, host, port, ready)


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files as far as needed and allowed; say where it stays short."""
    if sys.platform == "win32":  # sockets are not counted as files there
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < wanted:
        notice = f"the system allows {limit:,} open files, {wanted:,} may be asked for"
        print(f"aiowheel: {notice}", file=sys.stderr)
