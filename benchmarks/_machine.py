"""The machine, time and code version of a benchmark run."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aiowheel._build import build_info


def describe_machine() -> dict[str, object]:
    """Return the machine, the time and the code version of this run."""
    build = build_info()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": build.python,
        "platform": build.platform,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "build": "compiled" if build.accelerated else "pure",
        "version": build.version,
        "uvloop": _version_of("uvloop"),
        "rloop": _version_of("rloop"),
        "zuvloop": _version_of("zuvloop"),
        "commit": _commit(),
    }


def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the sources; None without a repository."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(root), "describe", "--always", "--dirty"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
