"""Which build of the hot modules runs: the compiled one or their source. Rank 0.

Importing this module decides, so it must be the first import of the package:
`AIOWHEEL_NO_EXTENSIONS=1` runs the source, `AIOWHEEL_REQUIRE_EXTENSIONS=1` refuses to.
The build hook (hatch_build.py) leaves a stamp with the hash of every compiled source; an editable
install whose sources were edited since runs the sources, so what you edit is what runs.
"""

import hashlib
import json
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType

__version__ = "0.1.0"

_PACKAGE = __name__.partition(".")[0]
_STAMP = f"_compiled{EXTENSION_SUFFIXES[0].rpartition('.')[0]}.json"


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What runs here, for people and for bug reports."""

    version: str
    """Version of the package."""
    accelerated: bool
    """Whether the compiled modules run."""
    reason: str
    """Why this build and not the other one, in words."""
    python: str
    """Implementation and version, as `CPython 3.11.7`."""
    platform: str
    """Operating system and machine, as `Linux-x86_64`."""
    compiled: tuple[str, ...]
    """Modules that have a compiled build for this interpreter, whether it runs or not."""
    stale: tuple[str, ...]
    """Those whose source was edited after they were compiled; always empty in a wheel."""


class SourceOnlyFinder(MetaPathFinder):
    """Finds the package's modules as `.py` even where an extension stands beside them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's third parameter
    ) -> ModuleSpec | None:
        """Look for a source file only; None leaves the search to the next finder."""
        if path is None or not fullname.startswith(f"{_PACKAGE}."):
            return None
        for entry in path:
            finder = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname)
            # A spec without a loader is a folder without __init__.py: the next finder's business.
            if spec is not None and spec.loader is not None:
                return spec
        return None


def build_info() -> BuildInfo:
    """Describe the running build.

    Cost: hashes the hot sources of an editable install, well below a millisecond.
    """
    root = Path(__file__).parent
    sources, editable = _read_stamp(root)
    return BuildInfo(
        version=__version__,
        accelerated=_ACCELERATED,
        reason=_REASON,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()}-{platform.machine()}",
        compiled=tuple(sorted(_module(name) for name in sources)),
        stale=_stale(root, sources) if editable else (),
    )


def accelerated() -> bool:
    """Whether the compiled modules run in this process; fixed at import."""
    return _ACCELERATED


def _read_stamp(root: Path) -> tuple[dict[str, str], bool]:
    """Hash by source path, and whether the install is editable; empty where nothing is compiled."""
    try:
        stamp = json.loads((root / _STAMP).read_bytes())
    except (FileNotFoundError, NotADirectoryError):  # the latter inside a zip archive
        return {}, False
    return stamp["sources"], stamp["editable"]


def _stale(root: Path, sources: dict[str, str]) -> tuple[str, ...]:
    """Modules whose source no longer is what was compiled. Hashes: a checkout changes times."""
    return tuple(
        sorted(
            _module(name)
            for name, compiled_from in sources.items()
            if _hash(root.parent / name) != compiled_from
        )
    )


def _hash(source: Path) -> str | None:
    return hashlib.sha256(source.read_bytes()).hexdigest() if source.exists() else None


def _module(source: str) -> str:
    return source.removesuffix(".py").replace("/", ".")


def _decide() -> tuple[bool, str]:
    """Choose the build: (compiled or not, why)."""
    if os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1":
        return False, "AIOWHEEL_NO_EXTENSIONS=1 is set"
    root = Path(__file__).parent
    sources, editable = _read_stamp(root)
    if not sources:
        return False, "this install has no compiled modules (no C compiler when it was built?)"
    stale = _stale(root, sources) if editable else ()
    if stale:
        return False, f"edited after compiling: {', '.join(stale)}; rebuild with `make build`"
    return True, "compiled modules found for this interpreter"


def _enforce(*, compiled: bool, reason: str) -> None:
    """Make the choice hold, or raise what the environment asked for."""
    if os.environ.get("AIOWHEEL_REQUIRE_EXTENSIONS") == "1" and not compiled:
        refusal = f"AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but {reason}"
        # The script of the command imports the package first: nobody there could catch an error.
        if Path(sys.argv[0]).stem == _PACKAGE:
            raise SystemExit(f"{_PACKAGE}: {refusal}")
        raise ImportError(refusal, name=_PACKAGE)
    if compiled:
        return
    sys.meta_path.insert(0, SourceOnlyFinder())
    if reason.startswith("edited"):
        warnings.warn(f"{_PACKAGE} runs uncompiled: {reason}", RuntimeWarning, stacklevel=2)


_ACCELERATED, _REASON = _decide()
_enforce(compiled=_ACCELERATED, reason=_REASON)
