"""Build hook: compile the hot modules with mypyc, or report why this build stays pure.

The modules are listed in pyproject.toml under `tool.hatch.build.targets.wheel.hooks.custom`.
Two environment variables are read at build time: `AIOWHEEL_NO_EXTENSIONS=1` skips compiling, and
with `AIOWHEEL_REQUIRE_EXTENSIONS=1` a build fails if it cannot compile.

The stamp `_compiled.<abi>.txt` beside the compiled modules holds the hash of every compiled source.
`aiowheel/_build.py` reads it, so that an older extension never shadows an edited source.
"""

import contextlib
import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Generator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling loads this file by its path

import hatch_c

PACKAGE = "aiowheel"
SUFFIX = EXTENSION_SUFFIXES[0]
ABI = SUFFIX.rpartition(".")[0]  # .cpython-311-x86_64-linux-gnu
STAMP = f"{PACKAGE}/_compiled{ABI}.txt"


class CompiledCoreHook(BuildHookInterface[Any]):
    """A build hook that puts the compiled modules into a wheel, or into an editable tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and register the products; hatchling calls this before it packs the wheel."""
        hook: Any = self  # hatchling declares the type of its metadata only in part
        check_python(hook.metadata.core)
        root = Path(self.root)
        editable = version == "editable"
        if editable:
            remove_products(root)
        reason = reason_to_stay_pure()
        if reason is not None:
            stay_pure(reason)
            return
        sources = hot_sources(root, self.config["compile"])
        # Not removed after success: hatchling packs the wheel after this method returns.
        build_dir = root / "build" / f"mypyc{ABI}"
        try:
            products = compile_modules(root, sources, build_dir)
        except CompilerFailedError as error:
            shutil.rmtree(build_dir)
            stay_pure(str(error))
            return
        products[STAMP] = write_stamp(root, sources, build_dir, editable=editable)
        if editable:
            for name, product in products.items():
                shutil.copy2(product, root / name)
        else:
            build_data["force_include"].update({str(path): to for to, path in products.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        print(f"aiowheel: compiled {len(sources)} modules with mypyc", file=sys.stderr)


def check_python(project: Any) -> None:
    """End the build on an older Python; pip checks `requires-python` of an sdist only after it."""
    running = ".".join(map(str, sys.version_info[:3]))
    if not project.python_constraint.contains(running):
        sys.exit(f"{PACKAGE} needs Python {project.requires_python}, this is {running}")


class CompilerFailedError(Exception):
    """The C compiler built the probe but not the modules."""


def hot_sources(root: Path, patterns: list[str]) -> list[str]:
    """Return the paths of the modules to compile, from *root*; a plain path must exist."""
    found: set[str] = set()
    for pattern in patterns:
        matches = {path.relative_to(root).as_posix() for path in root.glob(pattern)}
        if not matches and "*" not in pattern:
            sys.exit(f"pyproject.toml lists {pattern} for compiling, but there is no such file")
        found |= {name for name in matches if not name.endswith("__init__.py")}
    return sorted(found)


def stay_pure(reason: str) -> None:
    """Print that this build is pure; end the build if extensions are required."""
    if os.environ.get("AIOWHEEL_REQUIRE_EXTENSIONS") == "1":
        sys.exit(f"AIOWHEEL_REQUIRE_EXTENSIONS=1, but {reason}")
    announce(f"aiowheel: building WITHOUT compiled modules: {reason}")


def reason_to_stay_pure() -> str | None:
    """Return why nothing can or should be compiled, or None."""
    if os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1":
        return "AIOWHEEL_NO_EXTENSIONS=1 is set"
    if sys.implementation.name != "cpython":
        return f"mypyc supports CPython only, this is {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # Importing such an extension would enable the GIL; without the GIL its counts would be
        # wrong.
        return "this Python is free-threaded, and code compiled by mypyc relies on the GIL"
    return compiler_fault()


def compiler_fault() -> str | None:
    """Compile a one-line extension; return what is missing (compiler, Python.h), or None."""
    from setuptools import Extension

    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch, "probe.c")
        probe.write_text("#include <Python.h>\nPyObject *PyInit_probe(void) { return NULL; }\n")
        # A failing compiler writes to descriptor 2; the returned reason is enough.
        with silenced_stderr():
            try:
                build_extensions([Extension("probe", [str(probe)])], Path(scratch))
            except Exception as exc:  # distutils raises many types if the compiler is missing
                return f"no working C compiler was found ({exc})"
    return None


def compile_modules(
    root: Path, sources: list[str], build_dir: Path, *, opt_level: str = "3"
) -> dict[str, Path]:
    """Compile *sources*; return where each product lies, by its path in the wheel.

    Args:
        root: The folder that has the package.
        sources: Paths from *root*.
        build_dir: A folder for the products and everything between; an earlier one is replaced.
        opt_level: The C compiler's level of optimization, "0" to "3".

    Raises:
        CompilerFailedError: The C compiler cannot build what mypyc generates.
    """
    from mypyc.build import mypycify

    shutil.rmtree(build_dir, ignore_errors=True)
    docstrings = hatch_c.docstrings_of(root, sources)
    with contextlib.chdir(copy_for_mypyc(root, build_dir)):
        extensions = mypycify(
            [
                "--config-file=",  # `make lint` is strict; the build of a user need not be
                "--ignore-missing-imports",
                "--follow-imports=silent",
                *sources,
            ],
            opt_level=opt_level,
            target_dir=str(build_dir / "c"),
            group_name=hatch_c.GROUP,
        )
        for extension in extensions:
            for source in extension.sources:
                hatch_c.change(Path(source), docstrings)
            if sys.platform != "win32":
                # The modules form one shared library, so that the compiler may inline across them,
                # which makes call_later 8 % faster. Generated functions are long, so that the
                # default limit inlines hardly any; a higher one is 4 % faster. The last option
                # makes a build independent of its folder.
                extension.extra_compile_args = [
                    *extension.extra_compile_args,
                    "-fno-semantic-interposition",
                    "-finline-limit=300",
                    f"-ffile-prefix-map={build_dir}=.",
                ]
        try:
            build_extensions(extensions, build_dir)
        except Exception as error:  # distutils raises many types if a build fails
            text = f"the C compiler failed at the generated code ({error})"
            raise CompilerFailedError(text) from error
    lib = build_dir / "lib"
    return {path.relative_to(lib).as_posix(): path for path in sorted(lib.rglob(f"*{SUFFIX}"))}


def copy_for_mypyc(root: Path, build_dir: Path) -> Path:
    """Copy the package with every `TypeAlias` replaced by `object`, and return its path.

    With a narrower type mypyc checks the argument itself, before the package can raise its own
    error, which names the argument and the legal range. See `aiowheel/_types.py`. The original
    sources are kept in `build_dir/src`, for `write_stamp`.
    """
    as_it_was, copy = build_dir / "src", build_dir / "mypyc"
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(root / PACKAGE, as_it_was / PACKAGE, ignore=ignored)
    shutil.copytree(as_it_was, copy)
    for source in copy.rglob("*.py"):
        source.write_text(without_aliases(source.read_text("utf-8")), "utf-8")
    return copy


def without_aliases(source: str) -> str:
    """Return *source* with every `TypeAlias` replaced by `object`."""
    return _ALIAS.sub(r"\1: TypeAlias = object", source)


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
    """Write the hashes of the compiled sources; `aiowheel/_build.py` reads them."""
    lines = ["editable" if editable else "wheel"]
    for name in sources:
        status = (root / name).stat()
        compiled_from, present = (hash_of(folder / name) for folder in (build_dir / "src", root))
        # A source edited during the compilation must not count as compiled.
        known = editable and compiled_from == present
        fingerprint = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        lines.append(f"{compiled_from} {fingerprint if known else '-'} {name}")
    stamp = build_dir / "stamp.txt"
    stamp.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return stamp


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove_products(root: Path) -> None:
    """Remove the products of an earlier editable build for this interpreter from the tree."""
    for path in (root / PACKAGE).rglob(f"*{SUFFIX}"):
        path.unlink()
    (root / STAMP).unlink(missing_ok=True)


def announce(line: str) -> None:
    """Print *line*, and write it to the terminal as well: pip hides the output of a build."""
    print(line, file=sys.stderr, flush=True)
    requested = os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1"
    if not requested and not sys.stderr.isatty():
        with contextlib.suppress(OSError), Path("/dev/tty").open("w") as terminal:
            terminal.write(f"\n{line}\n")


@contextlib.contextmanager
def silenced_stderr() -> Generator[None, None, None]:
    """Redirect file descriptor 2 to the null device inside the block."""
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
