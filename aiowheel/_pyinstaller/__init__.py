"""The folder of PyInstaller's hooks for the package. Rank 5.

PyInstaller imports it by the entry point `pyinstaller40`; no program does.
"""

import os


def hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [os.path.dirname(__file__)]  # noqa: PTH120 - PyInstaller takes text
