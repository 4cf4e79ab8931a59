"""Build hook: compile the hot modules with mypyc, or say why this build stays pure.

The modules are listed in pyproject.toml under `tool.hatch.build.targets.wheel.hooks.custom`.
Two environment variables, read at build time, decide:
`AIOWHEEL_NO_EXTENSIONS=1` skips compiling, `AIOWHEEL_REQUIRE_EXTENSIONS=1` refuses to go without.

Beside the compiled modules stands `_compiled.<abi>.json` with the hash of every compiled source:
`aiowheel/_build.py` reads it, so an edited source is never shadowed by an older extension.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling loads this file by its path

import hatch_c

PACKAGE = "aiowheel"
GROUP = f"{PACKAGE}._core"  # mypyc's shared library becomes aiowheel/_core__mypyc.<abi>.so
SUFFIX = EXTENSION_SUFFIXES[0]
ABI = SUFFIX.rpartition(".")[0]  # .cpython-311-x86_64-linux-gnu
STAMP = f"{PACKAGE}/_compiled{ABI}.json"


class CompiledCoreHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, or leaves them in the tree of an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and register the result; called by hatchling before it packs the wheel."""
        root = Path(self.root)
        editable = version == "editable"
        if editable:
            remove_products(root)
        reason = reason_to_stay_pure()
        if reason is not None:
            if os.environ.get("AIOWHEEL_REQUIRE_EXTENSIONS") == "1":
                sys.exit(f"AIOWHEEL_REQUIRE_EXTENSIONS=1, but {reason}")
            announce(f"aiowheel: building WITHOUT compiled modules: {reason}")
            return
        sources = hot_sources(root, self.config["compile"])
        # Not removed here: hatchling packs the wheel after this returns.
        build_dir = root / "build" / f"mypyc{ABI}"
        products = compile_modules(root, sources, build_dir)
        products[STAMP] = write_stamp(root, sources, build_dir, editable=editable)
        if editable:
            for name, product in products.items():
                shutil.copy2(product, root / name)
        else:
            build_data["force_include"].update({str(path): to for to, path in products.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        print(f"aiowheel: compiled {len(sources)} modules with mypyc", file=sys.stderr)


def hot_sources(root: Path, patterns: list[str]) -> list[str]:
    """Repository-relative paths of the modules to compile; a plain path must exist."""
    found: set[str] = set()
    for pattern in patterns:
        matches = {path.relative_to(root).as_posix() for path in root.glob(pattern)}
        if not matches and "*" not in pattern:
            sys.exit(f"pyproject.toml lists {pattern} for compiling, but there is no such file")
        found |= {name for name in matches if not name.endswith("__init__.py")}
    return sorted(found)


def reason_to_stay_pure() -> str | None:
    """Why nothing can or shall be compiled, or None."""
    if os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1":
        return "AIOWHEEL_NO_EXTENSIONS=1 is set"
    if sys.implementation.name != "cpython":
        return f"mypyc supports CPython only, this is {sys.implementation.name}"
    return compiler_fault()


def compiler_fault() -> str | None:
    """Compile a one-line extension: says what is missing (compiler, Python.h), or None."""
    from setuptools import Extension

    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch, "probe.c")
        probe.write_text("#include <Python.h>\nPyObject *PyInit_probe(void) { return NULL; }\n")
        # A failing compiler writes to fd 2; the reason below is enough.
        with silenced_stderr():
            try:
                build_extensions([Extension("probe", [str(probe)])], Path(scratch))
            except Exception as exc:  # distutils has a dozen ways to say "no compiler"
                return f"no working C compiler was found ({exc})"
    return None


def compile_modules(root: Path, sources: list[str], build_dir: Path) -> dict[str, Path]:
    """Compile *sources*; returns where each product lies, by its path in the wheel."""
    from mypyc.build import mypycify

    shutil.rmtree(build_dir, ignore_errors=True)
    with contextlib.chdir(copy_for_mypyc(root, build_dir / "src")):
        extensions = mypycify(
            [
                "--config-file=",  # strictness is for `make lint`, not for users' builds
                "--ignore-missing-imports",
                "--follow-imports=silent",
                *sources,
            ],
            opt_level="3",
            target_dir=str(build_dir / "c"),
            group_name=GROUP,
        )
        for extension in extensions:
            for source in extension.sources:
                hatch_c.change(Path(source))
            # Lets the compiler inline across our modules, one shared library: 8 % of call_later.
            if sys.platform != "win32":
                extension.extra_compile_args.append("-fno-semantic-interposition")
                # What mypyc writes is long-winded; the usual limit inlines hardly any: 4 %.
                extension.extra_compile_args.append("-finline-limit=300")
        build_extensions(extensions, build_dir)
    lib = build_dir / "lib"
    return {path.relative_to(lib).as_posix(): path for path in sorted(lib.rglob(f"*{SUFFIX}"))}


def copy_for_mypyc(root: Path, copy: Path) -> Path:
    """Copy the package to *copy*, with every alias of `_types.py` replaced by `object`.

    mypyc would check an argument of a narrower type itself, before the package can raise its own
    error, which names the argument and the legal range.
    """
    shutil.copytree(
        root / PACKAGE,
        copy / PACKAGE,
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"),
    )
    types = copy / PACKAGE / "_types.py"
    if types.exists():
        types.write_text(_ALIAS.sub(r"\1: TypeAlias = object", types.read_text()))
    return copy


_ALIAS = re.compile(r"^(\w+): TypeAlias = .*$", re.MULTILINE)


def build_extensions(extensions: list[Any], build_dir: Path) -> None:
    """Run setuptools' build_ext into `build_dir/lib`, without a setup.py."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"name": PACKAGE, "ext_modules": extensions}))
    command.build_lib = str(build_dir / "lib")
    command.build_temp = str(build_dir / "temp")
    command.ensure_finalized()
    command.run()


def write_stamp(root: Path, sources: list[str], build_dir: Path, *, editable: bool) -> Path:
    """Write what was compiled from which source; `aiowheel/_build.py` is the reader."""
    hashes = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in sources}
    stamp = build_dir / "stamp.json"
    stamp.write_text(json.dumps({"editable": editable, "sources": hashes}, indent=1) + "\n")
    return stamp


def remove_products(root: Path) -> None:
    """Remove what an earlier editable build for this interpreter left in the tree."""
    for path in (root / PACKAGE).rglob(f"*{SUFFIX}"):
        path.unlink()
    (root / STAMP).unlink(missing_ok=True)


def announce(line: str) -> None:
    """Tell the person who builds; pip swallows a build's output, the terminal itself does not."""
    print(line, file=sys.stderr, flush=True)
    asked_for = os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1"
    if not asked_for and not sys.stderr.isatty():
        with contextlib.suppress(OSError), Path("/dev/tty").open("w") as terminal:
            terminal.write(f"\n{line}\n")


@contextlib.contextmanager
def silenced_stderr() -> Generator[None, None, None]:
    """Point file descriptor 2 at the null device for a while."""
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
