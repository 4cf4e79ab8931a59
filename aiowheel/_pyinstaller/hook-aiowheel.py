"""What a frozen program needs and PyInstaller does not find by itself. Rank 5.

The compiled modules import mypyc's shared library from C. `aiowheel/_build.py` reads the stamp, and
`AIOWHEEL_NO_EXTENSIONS=1` runs the sources of the compiled modules. The dashboard serves its page.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_SUFFIX = EXTENSION_SUFFIXES[0]
_SOURCES = [path for path in _PACKAGE.rglob("*.py") if path.with_suffix(_SUFFIX).exists()]
_FILES = [*_SOURCES, *_PACKAGE.glob("_compiled.*.txt"), *_PACKAGE.glob("dashboard/page/*")]

hiddenimports = [
    f"{_PACKAGE.name}.{path.name.removesuffix(_SUFFIX)}"
    for path in _PACKAGE.glob(f"*__mypyc{_SUFFIX}")
]
datas = [(str(path), str(path.parent.relative_to(_PACKAGE.parent))) for path in _FILES]
