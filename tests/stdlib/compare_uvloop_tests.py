"""Run uvloop's published tests on uvloop and on the wheel above it, and compare.

A program:

    python tests/stdlib/compare_uvloop_tests.py [MODULE...]

The tests come from the source distribution of the installed version, which pip fetches. If pip
cannot fetch it, the program prints that and runs nothing. The output is that of
`compare_loops.py`.
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

#: Modules that use timers; the others need compilers, name servers, or this version's source tree.
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
    """Put the tests of a release of uvloop into *folder*; return "", or why that failed."""
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
            # Only the tests: the archive also holds uvloop itself, uncompiled.
            _, _, name = member.name.partition("/tests/")
            if name:
                archive.extract(member.replace(name=name), folder, filter="data")
    return "" if (folder / "test_base.py").exists() else f"the source of {release} has no tests"


def main() -> int:
    """Fetch, compare, print; return 1 if a test failed only on the wheel."""
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
