"""Runs uvloop's published tests on uvloop and on the wheel above it, and compares.

A program:

    python tests/stdlib/compare_uvloop_tests.py [MODULE...]

The tests come with the source distribution of the version that is installed, fetched by pip; where
it cannot be had, that is said and nothing runs. Prints what `compare_loops.py` prints.
"""

import argparse
import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from compare_loops import compare
from guarded_run import Selection

#: Those that use timers; the others need compilers, name servers, or this version's source tree.
MODULES = (
    "test_base",
    "test_context",
    "test_dealloc",
    "test_executors",
    "test_pipes",
    "test_process",
    "test_regr1",
    "test_runner",
    "test_signals",
    "test_sockets",
    "test_tcp",
    "test_testbase",
    "test_udp",
    "test_unix",
)


def fetch_tests(release: str, folder: Path) -> str:
    """Put the tests of a release of uvloop into *folder*; why not, or "" when they are there."""
    options = ["--quiet", "--no-binary", ":all:", "--no-deps", "--no-build-isolation"]
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-d", folder, f"uvloop=={release}"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )
    found = list(folder.glob("uvloop-*.tar.gz"))
    if not found:
        return f"pip fetched no source of uvloop {release}: {answer.stderr.strip()[-500:]}"
    with tarfile.open(found[0]) as archive:
        for member in archive.getmembers():
            # The tests alone: beside them lies uvloop itself, uncompiled.
            _, _, name = member.name.partition("/tests/")
            if name:
                archive.extract(member.replace(name=name), folder, filter="data")
    return "" if (folder / "test_base.py").exists() else f"the source of {release} has no tests"


def main() -> int:
    """Fetch, compare, print; the exit status says whether only ours failed anything."""
    parser = argparse.ArgumentParser(description="Compare our loop with uvloop by uvloop's tests.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    modules = parser.parse_args().modules or MODULES
    try:
        release = version("uvloop")
    except PackageNotFoundError:
        print("skipped: uvloop is not installed")
        return 0
    with TemporaryDirectory() as folder:
        problem = fetch_tests(release, Path(folder))
        if problem:
            print(f"skipped: {problem}")
            return 0
        print(f"uvloop {release}, CPython {sys.version.split()[0]}: {len(modules)} modules")
        comparison = compare(Selection(tuple(modules), path=(folder,)), "uvloop")
    comparison.print()
    return bool(comparison.only_ours())


if __name__ == "__main__":
    sys.exit(main())
