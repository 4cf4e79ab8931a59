"""The files of settings: tokens, certificate and key. Rank 5.

A worker gets their contents from its parent, as the parent has read them. So a worker that replaces
a dead one has the settings of the other workers, even if a file was changed and then refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

_VARIABLE = "AIOWHEEL_SETTING_FILES"

_read: dict[str, bytes] = {}  # the last content of each file that this process has read


def read_setting(path: str) -> bytes:
    """Return the content of a file of settings; in a worker, as its parent has read it.

    Raises:
        OSError: The file cannot be read.
    """
    given = given_settings().get(path)
    if given is not None:
        return given
    content = _read[path] = Path(path).read_bytes()
    return content


@contextmanager
def setting_file(path: str) -> Generator[str]:
    """Yield the path of a file with the content that `read_setting` returns.

    Raises:
        OSError: The file cannot be read.
    """
    content = read_setting(path)
    if path not in given_settings():
        yield path
        return
    with _temporary_file(content) as (_, copy):
        yield copy


def forget_settings() -> None:
    """Forget the files of settings that this process has read."""
    _read.clear()


def settings_read() -> bytes:
    """Return the contents of the files of settings that this process has read and not forgotten."""
    # JSON has no bytes; every byte is a character of Latin-1.
    texts = {path: content.decode("latin-1") for path, content in _read.items()}
    return json.dumps(texts).encode()


@contextmanager
def given_to_worker(settings: bytes) -> Generator[tuple[int, dict[str, str]]]:
    """Yield a file descriptor and an environment variable, which a worker must inherit.

    Args:
        settings: The result of `settings_read`, which the worker uses in place of the files.
    """
    with _temporary_file(settings) as (descriptor, _):
        yield descriptor, {_VARIABLE: str(descriptor)}


@cache
def given_settings() -> dict[str, bytes]:
    """Return the contents that this process got from its parent, by path.

    A worker must call it, because its child processes must not inherit the environment variable.
    """
    descriptor = os.environ.pop(_VARIABLE, None)
    if descriptor is None:
        return {}
    with os.fdopen(int(descriptor), "rb") as file:
        file.seek(0)
        texts: dict[str, str] = json.load(file)
    return {path: text.encode("latin-1") for path, text in texts.items()}


@contextmanager
def _temporary_file(content: bytes) -> Generator[tuple[int, str]]:
    """Yield descriptor and path of a file; on Linux in memory, because it may be a private key."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("aiowheel"), "wb", buffering=0) as file:
            file.write(content)
            yield file.fileno(), f"/proc/self/fd/{file.fileno()}"
    else:
        with NamedTemporaryFile(buffering=0) as named:
            named.write(content)
            yield named.fileno(), named.name
