"""Sockets with which processes wake each other."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiowheel import _bells
from aiowheel._bells import Bells

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.skipif(
        not hasattr(socket, "AF_UNIX") or sys.platform == "win32",
        reason="the system has no Unix datagram sockets",
    ),
]


async def test_a_socket_that_cannot_be_bound_is_closed(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """A path that is too long makes `bind` fail; the socket must not leak."""
    monkeypatch.setattr(_bells, "_LONGEST_ADDRESS", 1_000)
    gc.collect()
    recwarn.clear()  # warnings that earlier tests left
    bells = Bells(short_path / ("x" * 200), "-bells")
    with pytest.raises(OSError, match="too long"):
        bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.close()
    del bells
    gc.collect()
    assert [each for each in recwarn if each.category is ResourceWarning] == []


async def test_a_process_without_descriptors_rings_later(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor a hint is lost; the data is stored, and a later hint is sent."""
    rung = asyncio.Event()
    file = short_path / "file"
    listening, ringing = Bells(file, "-bells"), Bells(file, "-bells")
    listening.listen(asyncio.get_running_loop(), lambda _: rung.set())

    def refuse(*_: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as limited:
        limited.setattr(socket, "socket", refuse)
        ringing.ring()
    assert not rung.is_set()

    ringing.ring()

    await rung.wait()
    listening.close()
    ringing.close()


@pytest.fixture
def no_umask() -> Iterator[None]:
    """New files and folders get all permissions that the program asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("of_file", "of_folder"),
    [(0o644, 0o700), (0o600, 0o700), (0o664, 0o770), (0o666, 0o777), (None, 0o700)],
)
async def test_only_users_who_may_write_the_file_can_send_messages(
    short_path: Path, of_file: int | None, of_folder: int, *, is_there: bool
) -> None:
    """An existing folder may be open to more users, as earlier releases created it."""
    file, folder = short_path / "file", short_path / "file-bells"
    if of_file is not None:
        file.touch(of_file)
    if is_there:
        folder.mkdir(0o777)
    bells = Bells(file, "-bells")
    bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.close()

    assert stat.S_IMODE(folder.stat().st_mode) == of_folder


def dead_socket(folder: Path) -> Path:
    """Leave a socket in *folder*, as a process does that was killed."""
    path = folder / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(str(path))
    return path


def test_only_dead_sockets_are_removed(short_path: Path) -> None:
    """Linux refuses a message to a plain file as it does one to the socket of a dead process."""
    folder = short_path / "file-bells"
    folder.mkdir()
    note = folder / "note"
    note.touch()
    dead = dead_socket(folder)

    bells = Bells(short_path / "file", "-bells")
    bells.ring()
    bells.close()

    assert note.exists()
    assert not dead.exists()


async def test_a_link_is_not_the_folder(short_path: Path) -> None:
    """It may lead to a folder of someone who does not expect sockets there."""
    elsewhere = short_path / "elsewhere"
    elsewhere.mkdir()
    dead = dead_socket(elsewhere)
    (short_path / "file-bells").symlink_to(elsewhere)

    bells = Bells(short_path / "file", "-bells")
    with pytest.raises(OSError, match="file-bells"):
        bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.ring()
    bells.close()

    assert list(elsewhere.iterdir()) == [dead]


@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_folder_of_another_user_is_used_only_if_he_may_read_the_file(
    *, is_missing: bool, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He could read the messages, which hold data of the file. A missing file is nobody's."""
    file, folder = short_path / "file", short_path / "file-bells"
    folder.mkdir()
    dead = dead_socket(folder)
    if not is_missing:
        file.touch(mode=0o600)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)

    bells = Bells(file, "-bells")
    bells.ring()
    if is_missing:
        with pytest.raises(PermissionError, match="a folder of another user"):
            bells.listen(asyncio.get_running_loop(), lambda _: None)
    else:
        bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.close()

    assert dead.exists() == is_missing


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can do this")
@pytest.mark.parametrize(("mode", "is_used"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_that_is_open_to_others_has_a_folder_of_anyone(
    mode: int, *, is_used: bool, short_path: Path
) -> None:
    """Users of one group may share a file, and the first one makes the folder."""
    file, folder = short_path / "file", short_path / "file-bells"
    file.touch()
    file.chmod(mode)
    folder.mkdir()
    dead = dead_socket(folder)
    os.chown(folder, 12345, -1)

    bells = Bells(file, "-bells")
    bells.ring()
    bells.close()

    assert dead.exists() != is_used
