"""The jars that Spark needs for Kafka, object stores and Delta Lake. Rank 5; starts no Spark.

Spark resolves Maven coordinates when it starts. The versions follow from the installation: the
Kafka and Avro connectors have the version of Spark, hadoop-aws that of the Hadoop inside it, and
Delta Lake that of the Python package ``delta-spark``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.jobs.spark.uris import Folder, Place, Table, Topic, parse_uri

_SCALA: Final = "2.13"
_DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_HADOOP_JAR: Final = re.compile(r"hadoop-client-api-(.+)\.jar")
_UNRESOLVED: Final = re.compile(
    r"(?:unresolved dependency|download failed): ([^#\s]+)#([^;\s]+);([^:!\]\s]+)"
)


def connector_settings(
    uris: Iterable[str], conf: Mapping[str, str] | None = None, *, avro: bool = False
) -> dict[str, str]:
    """Return the Spark settings for opening *uris*; pass them to `open_session` with *conf*.

    Args:
        uris: The URIs to read and write.
        conf: The user's own Spark settings. If they name jars, by ``spark.jars`` or
            ``spark.jars.packages``, no coordinates are added.
        avro: Whether Kafka values are Avro.

    Raises:
        BadInputError: A URI is invalid.
        MissingExtraError: A URI names a Delta table and the extra ``delta`` is not installed.
        AiowheelError: A URI needs hadoop-aws, and the installed Spark's Hadoop version is unknown.
    """
    theirs = dict(conf or {})
    places = [parse_uri(uri) for uri in uris]
    settings: dict[str, str] = {}
    if any(isinstance(place, Table) for place in places):
        settings |= _DELTA_SETTINGS
    if not theirs.keys() & {"spark.jars", "spark.jars.packages"}:
        packages = _coordinates(places, avro=avro)
        if packages:
            settings["spark.jars.packages"] = ",".join(packages)
    return settings | theirs


def _coordinates(places: list[Place], *, avro: bool) -> list[str]:
    import pyspark

    version = pyspark.__version__
    packages: list[str] = []
    if any(isinstance(place, Topic) for place in places):
        packages.append(f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{version}")
    if avro:
        packages.append(f"org.apache.spark:spark-avro_{_SCALA}:{version}")
    if any(isinstance(place, Table) for place in places):
        packages.append(_delta_coordinate(version))
    folders = [place.folder if isinstance(place, Table) else place for place in places]
    if any(isinstance(place, Folder) and place.scheme == "s3a" for place in folders):
        packages.append(f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}")
    return packages


def _delta_coordinate(spark_version: str) -> str:
    try:
        version = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        raise MissingExtraError("delta") from None
    # Since 4.1, there is one artifact for each minor version of Spark.
    of_spark = "" if version.startswith("4.0.") else "_" + ".".join(spark_version.split(".")[:2])
    return f"io.delta:delta-spark{of_spark}_{_SCALA}:{version}"


def _hadoop_version() -> str:
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    for jar in (home / "jars").glob("hadoop-client-api-*.jar"):
        if match := _HADOOP_JAR.fullmatch(jar.name):
            return match[1]
    raise AiowheelError(
        f"{home / 'jars'}: no hadoop-client-api jar names the version of hadoop-aws: give it with "
        "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"
    )


def missing_connectors(log: str) -> str | None:
    """Return an error text with the coordinates that Spark could not resolve; None if it could.

    Args:
        log: Spark's output on standard error at startup.
    """
    missing = dict.fromkeys(":".join(match) for match in _UNRESOLVED.findall(log))
    if not missing:
        return None
    return (
        f"Spark cannot download {', '.join(missing)}: name another version or mirror with --conf "
        "spark.jars.packages=GROUP:NAME:VERSION and spark.jars.repositories=URL, or jars you have "
        "with --conf spark.jars=PATH,..."
    )
