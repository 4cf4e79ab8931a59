"""Processes that share a folder find each other, and dead processes do no harm."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from aiowheel._siblings import Json, Siblings
from aiowheel.errors import BadInputError

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.realtime,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="the system has no Unix sockets"),
]


@contextlib.contextmanager
def sibling(folder: Path, name: str) -> Generator[Siblings]:
    """A sibling that answers with its name, and counts if the question says so."""

    async def answer(question: Json) -> AsyncGenerator[Json]:
        if question["ask"] == "silence":
            await asyncio.Event().wait()
        for number in range(question.get("count", 1)):
            yield {"name": name, "number": number}

    made = Siblings(folder, name, answer)
    try:
        yield made
    finally:
        made.close()


async def test_each_sibling_answers_with_its_name(short_path: Path) -> None:
    """The answers include this process; the folder is created with access for its owner only."""
    folder = short_path / "a" / "b"
    with sibling(folder, "one") as one, sibling(folder, "two") as two:
        assert one.names() == two.names() == ["one", "two"]
        assert await one.ask_all({"ask": "name"}, 30) == {
            "one": {"name": "one", "number": 0},
            "two": {"name": "two", "number": 0},
        }
        answers = [each["number"] async for each in two.ask("one", {"ask": "name", "count": 5})]

    assert answers == [0, 1, 2, 3, 4]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


async def test_a_sibling_that_does_not_answer_is_left_out(short_path: Path) -> None:
    """A sibling may close the connection or stay silent."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with sibling(short_path / "f", "one") as one, sibling(short_path / "f", "two"):
        async with await asyncio.start_unix_server(hang_up, short_path / "f" / "rude.sock"):
            assert sorted(await one.ask_all({"ask": "name"}, 30)) == ["one", "two"]
        assert await one.ask_all({"ask": "silence"}, 0.2) == {}


async def test_a_question_for_one_process_does_not_reach_the_others(short_path: Path) -> None:
    """The answer of a healthy process must not wait for a blocked one."""

    def reach(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer)

    reached: list[asyncio.StreamWriter] = []
    with sibling(short_path / "f", "one") as one, sibling(short_path / "f", "two"):
        async with await asyncio.start_unix_server(reach, short_path / "f" / "blocked.sock"):
            found = [
                list(await one.ask_all({"ask": "name"}, 30, only=name))
                for name in ("one", "two", "three")
            ]

    assert found == [["one"], ["two"], []]
    assert reached == []


async def test_an_answer_ends_where_the_transport_is_closed(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error is reported: uvloop raises RuntimeError where asyncio drops the data."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    begun, is_closed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(question: Json) -> AsyncGenerator[Json]:
        try:
            yield question
            begun.set()
            await is_closed.wait()
            yield question
        finally:
            ended.set()

    def refuse(_: asyncio.StreamWriter, data: bytes) -> None:
        raise RuntimeError(f"unable to perform operation on {data!r}; the handler is closed")

    made = Siblings(short_path / "f", "one", answer)
    try:
        _, writer = await asyncio.open_unix_connection(short_path / "f" / "one.sock")
        writer.write(b"{}\n")
        await begun.wait()
        monkeypatch.setattr(asyncio.StreamWriter, "write", refuse)
        is_closed.set()
        await ended.wait()
        await asyncio.sleep(0)
        writer.close()
    finally:
        made.close()
    gc.collect()

    assert reports == []


async def test_the_socket_of_a_dead_process_is_removed(short_path: Path) -> None:
    """A young socket stays, because its process may not listen yet."""
    with sibling(short_path / "f", "one") as one:
        path = short_path / "f" / "dead.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
        assert list(await one.ask_all({"ask": "name"}, 30)) == ["one"]
        assert one.names() == ["dead", "one"]
        os.utime(path, (1, 1))
        assert list(await one.ask_all({"ask": "name"}, 30)) == ["one"]
        assert one.names() == ["one"]


async def test_a_process_of_another_version_is_left_out(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays left out, with one log line, because its answers may have other fields."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b'{"aiowheel": "0.0.1"}\n{}\n')
        writer.close()

    with sibling(short_path / "f", "one") as one:
        async with await asyncio.start_unix_server(answer, short_path / "f" / "old.sock"):
            assert one.names() == ["old", "one"]
            for _ in range(3):
                assert list(await one.ask_all({"ask": "name"}, 30)) == ["one"]
                assert one.names() == ["one"]
            with pytest.raises(OSError, match="another version of aiowheel"):
                await anext(one.ask("old", {"ask": "name"}))

    assert len(asked) == 2
    (record, _) = caplog.records
    assert "aiowheel.sibling_left_out sibling='old'" in record.getMessage()
    assert "0.0.1" in record.getMessage()


async def test_without_its_folder_a_process_answers_itself(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others no longer find it, which is logged once."""
    folder = short_path / "f"
    with sibling(folder, "one") as one:
        shutil.rmtree(folder)
        for _ in range(3):
            assert list(await one.ask_all({"ask": "name"}, 30)) == ["one"]

    (record,) = caplog.records
    assert record.getMessage() == f"aiowheel.siblings_lost folder={str(folder)!r}"


async def test_closing_ends_the_answers_under_way(short_path: Path) -> None:
    """The client sees the end of the answer, and a second close does nothing."""
    with sibling(short_path / "f", "one") as one, sibling(short_path / "f", "two") as two:
        asking = asyncio.create_task(anext(one.ask("two", {"ask": "silence"}), None))
        while not two._answering:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        two.close()
        assert await asking is None
        two.close()


async def test_a_connection_that_arrives_during_the_close_is_closed(short_path: Path) -> None:
    """The answer is cancelled before it begins."""
    with sibling(short_path / "f", "one") as one:
        begin = one._begin_answer

        def close_and_begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            one.close()
            begin(reader, writer)

        one._begin_answer = close_and_begin  # type: ignore[method-assign]
        reader, writer = await asyncio.open_unix_connection(short_path / "f" / "one.sock")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()


def test_the_end_of_the_loop_closes_the_sibling(short_path: Path) -> None:
    """A process that ends without closing leaves no socket, and its name can be used again."""
    folder = short_path / "f"

    async def open_only() -> list[str]:
        stack.enter_context(sibling(folder, "one"))
        return [path.name for path in folder.iterdir()]

    with contextlib.ExitStack() as stack:
        assert asyncio.run(open_only()) == ["one.sock"]
        assert list(folder.iterdir()) == []


async def test_an_invalid_question_is_ignored(short_path: Path) -> None:
    """The connection of an invalid question is closed, and the next question is answered."""
    with sibling(short_path / "f", "one") as one:
        reader, writer = await asyncio.open_unix_connection(short_path / "f" / "one.sock")
        writer.write(b"hello\n")
        assert await reader.read() == b""
        writer.close()
        assert await one.ask_all({"ask": "name"}, 30)


async def test_a_folder_that_others_may_enter_is_refused(short_path: Path) -> None:
    """The sockets in the folder have no other protection."""
    os.chmod(short_path, 0o755)  # noqa: PTH101 - pathlib's is refused in a coroutine
    with pytest.raises(BadInputError, match="closed to others"), sibling(short_path, "x"):
        pass


@pytest.mark.parametrize("name", ["x" * 120, "f/g"])
async def test_a_folder_that_cannot_be_used_is_refused(short_path: Path, name: str) -> None:
    """The path is too long for a socket, or a file is in its place."""
    (short_path / "f").write_text("")
    with pytest.raises(BadInputError, match="folder must"), sibling(short_path / name, "x"):
        pass
