"""Third-party programs in the benchmark, at sizes that only test that they run."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import run
from aiowheel.errors import AiowheelError
from benchmarks import programs
from benchmarks._postgres import PostgresMissingError
from benchmarks._redis import RedisMissingError, redis_server
from benchmarks._report import Report
from benchmarks._rounds import Series
from benchmarks._side import Figures, Side
from benchmarks.workloads import programs as workloads

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]
TINY = replace(programs.QUICK, requests=10, at_once=2, standing=1, connections=3)


async def two_rounds(workload: AsyncGenerator[Figures, None]) -> list[Figures]:
    """Return the first two rounds of a workload."""
    rounds = [await anext(workload), await anext(workload)]
    await workload.aclose()
    return rounds


@pytest.mark.thorough
async def test_uvicorn_answers_clients_of_another_process() -> None:
    """All requests of a round are answered, and a second round runs on the same server."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")

    rounds = await two_rounds(workloads.fastapi_get(requests=20, at_once=2, standing=1))

    for figures in rounds:
        assert set(figures) == {"per_second", "p99_ms", "cpu_us", "standing"}
        assert figures["per_second"] > 0


@pytest.mark.thorough
async def test_websockets_are_pinged_and_echo_meanwhile() -> None:
    """No echo is lost, and all connections stay open."""
    pytest.importorskip("websockets", minversion="14")

    rounds = await two_rounds(
        workloads.websockets_pings(connections=5, interval=0.1, rate=100.0, seconds=0.5, standing=1)
    )

    for figures in rounds:
        assert (figures["lost"], figures["connections"]) == (0, 5)
        assert figures["pings"] > 0


@pytest.mark.slow
async def test_redis_is_read_through_its_socket() -> None:
    """The socket works with and without timeouts, and is removed afterwards."""
    pytest.importorskip("redis")
    try:
        with redis_server() as address:
            for timeouts in (True, False):
                (figures, _) = await two_rounds(
                    workloads.redis_get(
                        address=address, timeouts=timeouts, requests=20, at_once=2, standing=1
                    )
                )
                assert figures["cpu_us"] > 0
    except RedisMissingError as missing:
        pytest.skip(str(missing))
    assert not Path(address).parent.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands for redis-server")
def test_a_redis_that_does_not_start_raises_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the last line of its output, and no file remains."""
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho starting\necho no memory\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    with pytest.raises(AiowheelError, match="Redis did not start: no memory"), redis_server():
        pass


def test_a_missing_redis_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setenv("PATH", "")

    with pytest.raises(RedisMissingError, match="apt-get install redis-server"), redis_server():
        pass


@pytest.mark.thorough
def test_programs_are_measured_on_loops_and_wheel_loops(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without timeouts; missing programs are skipped with the reason."""
    pytest.importorskip("aiohttp")

    def no_postgres() -> None:
        raise PostgresMissingError("PostgreSQL is not installed")

    def no_redis() -> None:
        raise RedisMissingError("Redis is not installed")

    monkeypatch.setattr(programs, "postgres_server", no_postgres)
    monkeypatch.setattr(programs, "redis_server", no_redis)
    monkeypatch.setattr(programs, "loops_here", lambda: ["asyncio"])
    monkeypatch.setattr(programs, "QUICK", TINY)
    found = {"aiohttp", "asyncpg", "redis"}

    def find_spec(module: str) -> object:
        return module in found or None

    monkeypatch.setattr(programs, "find_spec", find_spec)

    assert run(["bench", "programs", "--quick"]) == 0

    content: dict[str, Any] = json.loads(
        (results / "aiowheel-bench" / "programs.json").read_bytes()
    )
    assert list(content["rounds"]) == ["aiohttp, 0", "aiohttp, 1"]
    for sides in content["rounds"].values():
        assert [side["side"]["loop"] for side in sides[::2]] == ["asyncio", "wheel on asyncio"]
    assert [table["title"] for table in content["tables"][2:]] == [
        "uvicorn: not measured, for uvicorn is not installed",
        "asyncpg: not measured, for PostgreSQL is not installed",
        "redis: not measured, for Redis is not installed",
        "websockets: not measured, for websockets is not installed",
    ]


@pytest.mark.slow
def test_one_program_can_be_run_alone_with_fewer_connections(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The title and the figures of every round hold the number of connections."""
    pytest.importorskip("websockets", minversion="14")
    monkeypatch.setattr(programs, "loops_here", lambda: ["asyncio"])
    monkeypatch.setattr(programs, "QUICK", TINY)

    arguments = ["bench", "programs", "--quick", "--only", "websockets", "--connections", "4"]
    assert run(arguments) == 0

    assert "pings and echoes on 4 connections" in capsys.readouterr().out
    content = json.loads((results / "aiowheel-bench" / "programs.json").read_bytes())
    assert list(content["rounds"]) == ["websockets, 0"]


def test_an_unknown_program_lists_the_legal_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command exits with 2 and lists the legal names."""
    assert run(["bench", "programs", "--only", "nope"]) == 2

    names = "aiohttp, uvicorn, asyncpg, redis, websockets"
    assert f"--only must be one of {names}, got 'nope'" in capsys.readouterr().err


def test_programs_are_judged_by_both_bounds() -> None:
    """A program with one table counts for both tables of the others."""
    report = Report("programs", {})
    costs = {
        ("aiohttp", 0): 1.0,
        ("aiohttp", 9): 0.9,
        ("asyncpg", 0): 1.03,
        ("asyncpg", 9): 0.85,
        ("websockets", 0): 0.8,
    }

    programs.judge(report, costs)

    *each, without_others, with_others = report.verdicts
    assert [one.passed for one in each] == [True, True, False, True, True]
    assert (without_others.measured, without_others.passed) == (1, False)
    assert (with_others.measured, with_others.passed) == (3, True)


def test_a_reduced_number_of_connections_is_in_the_title() -> None:
    """A process has a limit of open files."""
    figures: Figures = {"connections": 7}
    series = Series(Side("asyncio", ""), [figures])

    title = programs._title(programs.ProgramsPlan(), "websockets", 0, {"asyncio": series})

    assert "on 7 connections" in title
    assert "10,000 were wanted: see ulimit -n" in title


@pytest.mark.posix
def test_redis_is_stopped_if_the_block_raises() -> None:
    """The server is stopped even if the block raises."""
    addresses: list[str] = []

    def fail() -> None:
        with redis_server() as address:
            addresses.append(address)
            raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            fail()
    except RedisMissingError as missing:
        pytest.skip(str(missing))

    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(FileNotFoundError):
        probe.connect(addresses[0])
