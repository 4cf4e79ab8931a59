"""The environment of Spark's JVM: its folder of settings and its variables. Rank 5; no Spark."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from aiowheel.jobs.spark.java import find_java, spark_java_home

#: The default master: every core of this machine.
ANY_CORE = "local[*]"
#: The file in the folder of a session to which a silent Spark logs.
LOG = "spark.log"

# The last two lines: without its own logger, the gateway resets the root level and logs that.
_LOG4J = """\
rootLogger.level = @level@
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_MASTER_FLAG = re.compile(r"--master[ =](\S+)")
_MASTER_LINE = re.compile(r"^\s*spark\.master[\s=:]+(\S+)", re.MULTILINE)
_DEFAULTS_FILE = "spark-defaults.conf"


def java_environment(
    folder: Path, defaults: Mapping[str, str], given: Mapping[str, str], *, verbose: bool
) -> dict[str, str]:
    """Write the JVM's configuration folder into *folder*; return the environment it needs.

    The configuration folder contains all files of the user's one. In the file of settings the
    user's lines come after ours, and Spark uses the last line of a setting.
    """
    conf = folder / "conf"
    conf.mkdir()
    theirs = _configuration_folder()
    for file in theirs.iterdir() if theirs else ():
        if file.name != _DEFAULTS_FILE:
            (conf / file.name).symlink_to(file.absolute())
    lines = "".join(f"{name} {_property(value)}\n" for name, value in defaults.items())
    their_lines = _text(theirs / _DEFAULTS_FILE) if theirs else ""
    (conf / _DEFAULTS_FILE).write_text(lines + their_lines, encoding="utf-8")
    log4j = conf / "log4j2.properties"
    is_silent = not (verbose or log4j.exists())
    if not log4j.exists():
        level = "warn" if verbose else "off"
        log4j.write_text(_LOG4J.replace("@level@", level), encoding="utf-8")
    ours = {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_CONF_DIR": str(conf),
        "AIOWHEEL_SPARK_LOG": str(folder / LOG) if is_silent else "",
    }
    if sys.platform == "linux" and sys.flags.utf8_mode:
        # As with LC_ALL=C: Python takes file names as UTF-8, but Java goes by the locale and does
        # not find a file with a letter outside ASCII in its name.
        ours["LC_ALL"] = "C.UTF-8"
    master = given.get("spark.master") or _configured_master(their_lines)
    if is_on_this_machine(master) and "SPARK_LOCAL_IP" not in os.environ:
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"  # avoids a warning about the host's name
    # YARN and Kubernetes send parts of this folder to their workers; a standalone cluster does not.
    alone = master.startswith(("local", "spark://"))
    if alone and "SPARK_HOME" not in os.environ and os.name == "posix":
        ours |= _linked_spark_home(folder)
    return ours


def is_on_this_machine(master: str) -> bool:
    """Return whether the master is on this machine."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def _configuration_folder() -> Path | None:
    """Return the user's folder of Spark settings, by Spark's own rule."""
    home = os.environ.get("SPARK_HOME")
    place = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return Path(place) if place and Path(place).is_dir() else None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _property(value: str) -> str:
    """Return a value escaped for a file of Java properties."""
    return value.replace("\\", "\\\\")


def _configured_master(settings: str) -> str:
    """Return the master of the user's settings, as far as the environment depends on it."""
    submitted = _MASTER_FLAG.findall(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    found = submitted or _MASTER_LINE.findall(settings)
    return str(found[-1]) if found else ANY_CORE


def _linked_spark_home(folder: Path) -> dict[str, str]:
    """Create a SPARK_HOME of links, so that workers of a local cluster write only into *folder*.

    It omits PySpark's archive if the workers run this Python, which has PySpark: each worker would
    compile the modules that it imports from the archive, for more than a second. On the driver, a
    stream with state starts a worker for each stage, and Spark waits at most 10 s for it.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "jars").is_dir():
        return {}  # PySpark lies in its own Spark installation and finds it
    home = folder / "spark"
    home.mkdir()
    parts = {"bin", "jars", "sbin", "RELEASE"}
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        parts.add("python")
    for part in package.iterdir():
        if part.name in parts:
            (home / part.name).symlink_to(part)
    return {"SPARK_HOME": str(home)}
