"""The choice of the build of the hot modules: the compiled one or their source. Rank 0.

The import of this module makes the choice, so it must be the first import of the package.
`AIOWHEEL_NO_EXTENSIONS=1` chooses the source; with `AIOWHEEL_REQUIRE_EXTENSIONS=1`, the import
fails without the compiled build. The build hook (hatch_build.py) writes a stamp with the hash of
every compiled source. In an editable install, one edited source makes Python run the sources of all
modules. A subinterpreter runs the sources, because mypyc keeps the globals of a module in C.

This module adds to the time of every `import aiowheel`. Functions therefore import the modules that
only some processes need, and annotations are not strings, which `NamedTuple` would compile.
"""

import _thread
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType
from typing import NamedTuple

__version__ = "0.1.0"

_PACKAGE = __name__.partition(".")[0]
_ROOT = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib takes 4 ms to import
_STAMP = f"{_PACKAGE}/_compiled{EXTENSION_SUFFIXES[0].rpartition('.')[0]}.txt"


class BuildInfo(NamedTuple):
    """A description of the running build, for example for bug reports."""

    version: str
    """Version of the package."""
    accelerated: bool
    """Whether the compiled modules run."""
    reason: str
    """The reason why this build runs and not the other one, as text."""
    python: str
    """Implementation and version, as `CPython 3.11.7`."""
    platform: str
    """Operating system and machine, as `Linux-x86_64`."""
    compiled: tuple[str, ...]
    """Modules with a compiled build for this interpreter, even if it does not run."""
    stale: tuple[str, ...]
    """Modules whose source was edited after they were compiled; always empty in a wheel."""

    def __str__(self) -> str:
        """Return one line, as `aiowheel 0.1.0 (compiled), CPython 3.11.7, Linux-x86_64`."""
        build = "compiled" if self.accelerated else "pure"
        return f"{_PACKAGE} {self.version} ({build}), {self.python}, {self.platform}"


class Source(NamedTuple):
    """A line of the stamp: one source as it was when it was compiled."""

    hash: str
    """SHA-256, in hexadecimal digits."""
    fingerprint: str
    """Size and times of the file; `-` in a wheel, which does not keep them."""
    path: str
    """Path below the folder that holds the package."""

    @property
    def module(self) -> str:
        """Dotted name of the module."""
        return self.path.removesuffix(".py").replace("/", ".")

    def is_edited(self) -> bool:
        """Return whether the file differs from the compiled source.

        The same size and times prove that the file is unchanged. Different times prove nothing,
        because a checkout sets them; the content then decides.
        """
        path = f"{_ROOT}/{self.path}"
        try:
            if fingerprint(path) == self.fingerprint:
                return False
            with open(path, "rb") as file:  # noqa: PTH123 - as above
                content = file.read()
        except OSError:
            return True
        from hashlib import sha256

        return sha256(content).hexdigest() != self.hash


class SourceOnlyFinder:
    """A finder on `sys.meta_path` that finds a module's source and ignores its extension.

    It leaves modules without an extension to the other finders: pytest's, for example, rewrites
    their asserts.
    """

    def __init__(self) -> None:
        #: by folder: one for extensions, one for sources
        self._finders: dict[str, tuple[FileFinder, FileFinder]] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's third parameter
    ) -> ModuleSpec | None:
        """Look for the source beside an extension of the package; None leaves it to the next."""
        if path is None or not fullname.startswith(f"{_PACKAGE}."):
            return None
        for folder in path:
            finders = self._finders.get(folder)
            if finders is None:
                finders = self._finders[folder] = (
                    FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES)),
                    FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)),
                )
            extensions, sources = finders
            extension = extensions.find_spec(fullname)
            # A spec without a loader is a folder, which other finders handle.
            if extension is not None and extension.loader is not None:
                return sources.find_spec(fullname)
        return None

    def invalidate_caches(self) -> None:
        """Drop the cached content of folders; `importlib.invalidate_caches` calls this."""
        self._finders.clear()


def fingerprint(path: str) -> str:
    """Return a text that changes whenever the file's content changes, without reading the file.

    The time of the last status change is part of it, because no program can set that time back.
    """
    status = os.stat(path)  # noqa: PTH116 - as above
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def build_info() -> BuildInfo:
    """Describe the running build.

    Cost: in an editable install, a check of the hot sources, some milliseconds at most.
    """
    import platform

    editable, sources = _read_stamp()
    return BuildInfo(
        version=__version__,
        accelerated=_ACCELERATED,
        reason=_REASON or _reason_without_extensions(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()}-{platform.machine()}",
        compiled=tuple(sorted(source.module for source in sources)),
        stale=_stale(sources) if editable else (),
    )


def accelerated() -> bool:
    """Return whether the compiled modules run in this process; fixed at import."""
    return _ACCELERATED


def _read_stamp() -> tuple[bool, list[Source]]:
    """Return whether the install is editable, and the compiled sources, if there are any."""
    try:
        with open(f"{_ROOT}/{_STAMP}", encoding="utf-8") as file:  # noqa: PTH123 - as above
            head, *lines = file.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):  # the latter inside a zip archive
        return False, []
    return head == "editable", [Source(*line.split(" ", 2)) for line in lines]


def _stale(sources: list[Source]) -> tuple[str, ...]:
    """Return the modules whose source was edited after it was compiled."""
    return tuple(sorted(source.module for source in sources if source.is_edited()))


def _reason_without_extensions() -> str:
    """Return why no module is compiled. Not called at import: sysconfig takes a millisecond."""
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python is free-threaded, for which the modules are not compiled"
    if os.path.exists(f"{_ROOT}/hatch_build.py"):  # noqa: PTH110 - as above
        return "these are the sources of a checkout, which were not compiled"
    return "this install has no compiled modules (no C compiler when it was built?)"


def _decide() -> tuple[bool, str]:
    """Return whether to run the compiled build, and why; "" if no module is compiled."""
    if os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1":
        return False, "AIOWHEEL_NO_EXTENSIONS=1 is set"
    editable, sources = _read_stamp()
    if not sources:
        return False, ""
    if _in_subinterpreter():
        return False, "this is a subinterpreter, and compiled modules run in the main one only"
    stale = _stale(sources) if editable else ()
    if stale:
        return False, f"edited after compiling: {', '.join(stale)}; rebuild with `make build`"
    return True, "compiled modules found for this interpreter"


def _in_subinterpreter() -> bool:
    """Return whether this is not the main interpreter; always False on Python 3.11."""
    is_main: Callable[[], bool] | None = getattr(_thread, "_is_main_interpreter", None)
    return is_main is not None and not is_main()


def _enforce(*, compiled: bool, reason: str) -> None:
    """Apply the choice of the build, or raise the error that the environment requires."""
    if os.environ.get("AIOWHEEL_REQUIRE_EXTENSIONS") == "1" and not compiled:
        reason = reason or _reason_without_extensions()
        refusal = f"AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but {reason}"
        # The script of the command imports the package first, so it cannot catch an error.
        program = os.path.basename(sys.argv[0])  # noqa: PTH119 - as above
        if program.partition(".")[0] == _PACKAGE:
            raise SystemExit(f"{_PACKAGE}: {refusal}")
        raise ImportError(refusal, name=_PACKAGE)
    if compiled:
        return
    sys.meta_path.insert(0, SourceOnlyFinder())
    if reason.startswith("edited"):
        import warnings

        warnings.warn(f"{_PACKAGE} runs uncompiled: {reason}", RuntimeWarning, stacklevel=2)


_ACCELERATED, _REASON = _decide()
_enforce(compiled=_ACCELERATED, reason=_REASON)
