"""The check of the demo's dependencies, before it starts."""

from __future__ import annotations

from importlib.util import find_spec

from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.jobs.spark.java import find_java

_EXTRA_OF = {"starlette": "web", "uvicorn": "web", "numpy": "trace", "pyarrow": "trace"}
_SPARK_EXTRA_OF = {"pyspark": "spark", "pandas": "spark", "matplotlib": "plot"}


def require_packages(*, with_spark: bool) -> None:
    """Check that all dependencies are installed.

    Raises:
        MissingExtraError: A package is missing; the text is the command that installs it.
        AiowheelError: Only part 3 cannot run; the text names the option that leaves it out.
    """
    _require(_EXTRA_OF)
    if not with_spark:
        return
    try:
        _require(_SPARK_EXTRA_OF)
        find_java()
    except MissingExtraError as error:
        raise AiowheelError(f"{error} (or leave Spark out: aiowheel demo --no-spark)") from error


def _require(extra_of: dict[str, str]) -> None:
    missing = {extra for package, extra in extra_of.items() if find_spec(package) is None}
    if missing:
        raise MissingExtraError(",".join(sorted(missing)))
