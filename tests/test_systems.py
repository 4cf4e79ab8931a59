"""Portability: the package imports nothing that only Linux has, and tests are marked accordingly.

A Windows machine is not available, so these tests remove what Windows lacks from this system:
modules, functions, signals and `sys.platform`. asyncio's default loop is then its proactor loop, on
a fake of the completion port. What macOS lacks is a subset.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "aiowheel").rglob("*.py"))
    if path.name != "__main__.py" and "-" not in path.stem  # the hooks of PyInstaller are scripts
]

#: Missing names of modules that every system has; macOS lacks the first line as well.
NOT_ON_WINDOWS = {
    "os": [
        *("O_PATH", "eventfd", "memfd_create", "posix_fadvise", "sched_getaffinity"),
        *("chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid"),
        *("getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice", "register_at_fork"),
        *("setsid", "sysconf", "uname", "wait4", "O_DIRECTORY", "O_NONBLOCK", "WNOHANG"),
    ],
    "signal": [
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
        *("SIGUSR1", "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer"),
    ],
    "socket": ["AF_UNIX", "recv_fds", "send_fds"],
}
POSIX_MODULES = ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"]

ON_WINDOWS = """
import asyncio, importlib, json, socket, sys
from functools import partial
from tests.loop.proactor import FakeProactorEventLoop

names, gone_modules, gone = json.loads(sys.argv[1])
for name in names:  # what others wrote is imported as it is on this system
    importlib.import_module(name)
for name in [each for each in sys.modules if each.partition(".")[0] == "aiowheel"]:
    del sys.modules[name]
socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)  # by its default without AF_UNIX
for name in gone_modules:
    sys.modules[name] = None
for module, attributes in gone.items():
    for attribute in attributes:
        if hasattr(importlib.import_module(module), attribute):
            delattr(importlib.import_module(module), attribute)
sys.platform = "win32"
asyncio.ProactorEventLoop = FakeProactorEventLoop

for name in names:
    importlib.import_module(name)

import aiowheel


async def main():
    loop = asyncio.get_running_loop()
    async with aiowheel.Timer() as timer, aiowheel.Purgatory("p", timer=timer) as purgatory:
        waiting = asyncio.ensure_future(purgatory.wait_until({"k": 1}, timeout=600.0))
        await timer.sleep(0.001)
        purgatory.advance("k", 1)
        print(type(loop).__name__, await waiting)


aiowheel.run(main(), uvloop=False)
"""


@pytest.mark.slow
def test_every_module_imports_on_windows() -> None:
    """No import, and no use of a timer or a purgatory, needs what Windows lacks."""
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, json.dumps([MODULES, POSIX_MODULES, NOT_ON_WINDOWS])],
        cwd=ROOT,
        env=os.environ
        | {
            "AIOWHEEL_NO_EXTENSIONS": "1",
            "AIOWHEEL_REQUIRE_EXTENSIONS": "",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.stdout == "WheelProactorEventLoop True\n", done.stderr


#: Words in the code of a test, and the mark that it needs. Strings count, docstrings do not.
NEEDS = {
    "linux": ("/proc/",),
    "posix": (
        *("AF_UNIX", "SIGALRM", "SIGCONT", "SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1"),
        *("chmod", "fork", "geteuid", "killpg", "mkfifo", "pthread_kill", "setitimer"),
        *("symlink_to", "pwd", "resource.getrlimit", "/dev/"),
    ),
}


def words_of(node: ast.AST) -> Iterator[str]:
    """Yield the names, attributes and strings in a piece of code, without docstrings."""
    docstrings = {
        id(each.body[0].value)
        for each in ast.walk(node)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and isinstance(each.body[0], ast.Expr)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield ast.unparse(each)
            yield each.attr
        elif isinstance(each, ast.Name):
            yield each.id
        elif (
            isinstance(each, ast.Constant)
            and isinstance(each.value, str)
            and id(each) not in docstrings
        ):
            yield each.value


def marks_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """Return the decorators as text."""
    return " ".join(ast.unparse(each) for each in node.decorator_list)


def unmarked_tests(source: str) -> Iterator[str]:
    """Yield the tests that use what some system lacks without a mark or a `skipif`."""
    if not any(word in source for words in NEEDS.values() for word in words):
        return
    tree = ast.parse(source)
    module_marks = " ".join(
        ast.unparse(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"
    )
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = f"{module_marks} {marks_of(node)}"
        if (
            not node.name.startswith("test_")
            or "skipif" in marks
            or "importorskip" in ast.unparse(node)
        ):
            continue
        used = set(words_of(node))
        for mark, words in NEEDS.items():
            sign = any(
                word in text if word.startswith("/") else word == text
                for text in used
                for word in words
            )
            # A test with the mark `linux` needs no mark `posix`.
            if sign and not any(f"mark.{name}" in marks for name in (mark, "linux")):
                yield f"{node.name} needs mark {mark}"


def test_tests_are_marked_with_the_system_they_need() -> None:
    """A run on Windows or macOS then skips these tests instead of failing."""
    missing = {
        path.relative_to(TESTS).as_posix(): list(unmarked_tests(path.read_text(encoding="utf-8")))
        for path in TESTS.rglob("test_*.py")
        if path.name != Path(__file__).name
    }

    assert {path: found for path, found in missing.items() if found} == {}


def test_a_missing_mark_is_found() -> None:
    """The search for marks reports a test without one."""
    found = list(
        unmarked_tests(
            "def test_one():\n    os.kill(1, signal.SIGKILL)\n"
            "@pytest.mark.posix\ndef test_two():\n    os.fork()\n"
            "def test_three():\n    '''os.fork'''\n"
            "def test_four():\n    open('/proc/self/stat')\n"
        )
    )

    assert found == ["test_one needs mark posix", "test_four needs mark linux"]
