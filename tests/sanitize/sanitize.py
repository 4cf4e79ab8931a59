"""Compile the hot modules with AddressSanitizer and UBSan, and run the core's tests on them.

A program, run by `make sanitize` with each interpreter:

    python -m tests.sanitize.sanitize [ARGUMENT OF PYTEST ...]

The modules are kept in a folder of the interpreter under `build/sanitize`, until a source changes.
The tests and the simulated worlds run on them twice. With `PYTHONMALLOC=malloc` each object is a
block of its own, which AddressSanitizer watches. With `PYTHONMALLOC=debug` the interpreter checks
the edges of each block, and the sanitizers watch what the generated code does between them.

A report ends its process with an error. It needs gcc with its libraries of the sanitizers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import hatch_build

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "build" / "sanitize" / hatch_build.ABI.strip(".")
TESTS = (
    *(f"tests/{name}" for name in ("wheel", "timer", "purgatory", "loop", "recipes")),
    *(f"tests/test_{name}.py" for name in ("collector", "references", "subclasses")),
    "tests/test_wrong_arguments.py",
)
#: Tests that measure memory, in which a sanitizer keeps freed blocks and the edges of each block.
LEFT_OUT = "not cost_120_bytes_each and not on_three_keys_leave_nothing"
#: A report goes to descriptor 2, and a fault of memory to AddressSanitizer, which names its block.
PYTEST = (
    *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--capture=sys"),
    *("-k", LEFT_OUT),
)
WORLDS = ("-m", "aiowheel.testing.simulation", "--seeds", "200")
ALLOCATORS = ("malloc", "debug")
FLAGS = (
    "-fsanitize=address,undefined,float-cast-overflow",  # `undefined` lacks the last one
    "-fno-sanitize=shift-base",  # mypyc shifts negative integers, which gcc and clang define
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-UNDEBUG",  # the assertions in Python.h
    "-g1",
)
COMPILER = {"CFLAGS": " ".join(FLAGS), "LDFLAGS": FLAGS[0]}  #: variables that setuptools reads
#: What the sanitizers do not report, and why.
OPTIONS = ("detect_leaks=0",)  # at its end CPython frees neither interned strings nor static types


def compiled() -> Path:
    """Return a folder with the package and its sanitized modules, compiled if sources changed."""
    stamp = FOLDER / "made-from.txt"
    made_from = _hash_of_sources()
    package = FOLDER / "src"  # the hook's copy of the sources
    if stamp.exists() and stamp.read_text("utf-8") == made_from:
        return package
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    sources = hatch_build.hot_sources(ROOT, hook["compile"])
    with patch.dict(os.environ, COMPILER):
        products = hatch_build.compile_modules(ROOT, sources, FOLDER, opt_level="0")
    products[hatch_build.STAMP] = hatch_build.write_stamp(ROOT, sources, FOLDER, editable=False)
    for name, product in products.items():
        shutil.copy2(product, package / name)
    stamp.write_text(made_from, "utf-8")
    return package


def _hash_of_sources() -> str:
    package = (ROOT / hatch_build.PACKAGE).rglob("*.py")
    files = [*package, *ROOT.glob("hatch_*.py"), ROOT / "pyproject.toml"]
    whole = hashlib.sha256(f"{sys.version} {FLAGS}".encode())
    for file in sorted(files):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def runtime() -> str | None:
    """Return the path of gcc's library of AddressSanitizer, or None if there is none."""
    if shutil.which("gcc") is None:
        return None
    question = ["gcc", "-print-file-name=libasan.so"]
    path = subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()
    return path if Path(path).is_absolute() else None


def environment(package: Path, allocator: str) -> dict[str, str]:
    """Return the variables under which a process of this interpreter runs with the sanitizers.

    Args:
        package: The folder to import from, before the checkout.
        allocator: PYTHONMALLOC.
    """
    return {
        **os.environ,
        "AIOWHEEL_REQUIRE_EXTENSIONS": "1",
        "ASAN_OPTIONS": ":".join(OPTIONS),
        "LD_PRELOAD": str(runtime()),  # the interpreter itself does not link it
        "PYTHONMALLOC": allocator,
        "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT))),
        "PYTHONSAFEPATH": "1",  # the checkout's own package must not come first
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main(arguments: Sequence[str]) -> int:
    """Compile, run everything with each allocator; return 1 if something failed."""
    if runtime() is None:
        sys.exit("the sanitizers need gcc and its libasan.so, which were not found")
    package = compiled()
    failed = False
    for allocator in ALLOCATORS:
        for words in ((*PYTEST, *TESTS, *arguments), WORLDS):
            print(f"== {sys.executable} -m {words[1]}, PYTHONMALLOC={allocator}", flush=True)
            command = [sys.executable, *words]
            done = subprocess.run(
                command, cwd=ROOT, env=environment(package, allocator), check=False
            )
            failed |= done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
