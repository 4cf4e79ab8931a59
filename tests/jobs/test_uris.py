"""URIs of tables, and the jars for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiowheel.cli._destination import check_apart
from aiowheel.errors import BadInputError, MissingExtraError
from aiowheel.jobs.spark.connectors import connector_settings, missing_connectors
from aiowheel.jobs.spark.uris import (
    Folder,
    Place,
    Table,
    Topic,
    inside,
    is_inside,
    parse_uri,
    spark_file,
    whole_uri,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("kafka://a:9092/touches", Topic("a:9092", "touches")),
        ("kafka://a:9092,b.c:1/t.o_p-1", Topic("a:9092,b.c:1", "t.o_p-1")),
        ("kafka://[::1]:9092/touches", Topic("[::1]:9092", "touches")),
        ("s3a://bucket/a/b", Folder("s3a://bucket/a/b", "s3a")),
        ("hdfs://node:8020/a", Folder("hdfs://node:8020/a", "hdfs")),
        ("hdfs:///a", Folder("hdfs:///a", "hdfs")),
        ("file:///a b", Folder("file:///a b", "file")),
        ("/a/b", Folder("/a/b", "file")),
        ("a", Folder(str(Path("a").absolute()), "file")),
        ("delta:/a", Table(Folder("/a", "file"))),
        ("delta:s3a://bucket/a", Table(Folder("s3a://bucket/a", "s3a"))),
    ],
)
def test_a_uri_names_a_place(uri: str, place: Place) -> None:
    """A URI names a topic, a folder or a table."""
    assert parse_uri(uri) == place


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "delta:",
        "kafka://a/touches",
        "kafka://a:9092",
        "kafka://a:9092/",
        "kafka://a:99999/touches",
        "kafka://a:9092,/touches",
        "kafka://a:9092/a/b",
        "kafka://a:9092/..",
        "delta:kafka://a:9092/touches",
        "s3://bucket/a",
        "s3a://bucket",
        "s3a:///a",
        "file://host/a",
        "http://host/a",
        "kafka://app:password@a:9092/touches",
    ],
)
def test_an_invalid_uri_is_refused(uri: str) -> None:
    """The error has the scheme alone, because the rest may hold a password."""
    scheme, separator, _ = uri.partition("://")
    shown = f"{scheme}://..." if separator else repr(uri)
    with pytest.raises(BadInputError, match=f"got {re.escape(shown)}$"):
        parse_uri(uri)


def test_a_folder_is_not_read_as_a_pattern() -> None:
    """Spark would read all folders that a pattern matches."""
    assert parse_uri("s3a://bucket/run[1]") == Folder("s3a://bucket/run[1]", "s3a")
    assert Folder("s3a://bucket/run[1]", "s3a").pattern == r"s3a://bucket/run\[1\]"
    assert Folder("/run[1]", "file").pattern == r"file:///run\[1\]"


@pytest.mark.parametrize(
    ("uri", "for_spark"),
    [
        ("/a b/50%/x:1", "file:///a b/50%/x:1"),
        ("file:///a b/%20", "file:///a b/%20"),
        ("//a", "file:////a"),
        ("hdfs:///a", "hdfs:///a"),
    ],
)
@pytest.mark.posix
def test_spark_gets_a_scheme(uri: str, for_spark: str) -> None:
    """Without one, Spark would use the default file system of its cluster."""
    place = parse_uri(uri)

    assert isinstance(place, Folder)
    assert place.for_spark == for_spark


def test_spark_gets_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM may have another working folder, and would take text before a colon for a scheme."""
    monkeypatch.chdir(tmp_path)

    assert spark_file("a:b") == f"file://{tmp_path / 'a:b'}"


def test_tables_of_one_place_have_separate_names() -> None:
    """Tables of a folder are folders in it; tables of a topic are topics."""
    assert inside("found/", "outcomes") == "found/outcomes"
    assert inside("delta:s3a://lake/found", "rejects") == "delta:s3a://lake/found/rejects"
    assert inside("kafka://a:1/found", "outcomes") == "kafka://a:1/found.outcomes"


@pytest.mark.parametrize(
    ("uri", "outer", "is_so"),
    [
        ("s3a://lake/a/b", "s3a://lake/a", True),
        ("s3a://lake/a/", "s3a://lake/a", True),
        ("s3a://lake/ab", "s3a://lake/a", False),
        ("s3a://lake/a", "s3a://lake/a/b", False),
        ("delta:s3a://lake/a", "s3a://lake/a", True),
        ("file:///x/../x/a", "/x", True),
        ("kafka://a:1/found", "kafka://a:1/found", True),
        ("kafka://a:1/found", "kafka://a:1/foun", False),
        ("kafka://a:1/found", "/found", False),
    ],
)
def test_a_place_may_lie_inside_another_one(uri: str, outer: str, *, is_so: bool) -> None:
    """Only whole names count."""
    assert is_inside(uri, outer) is is_so


@pytest.mark.parametrize(
    ("out", "rejects", "are_replaced", "reason"),
    [
        ("s3a://lake/x/in", None, False, "--out must be outside the tables that are read, got"),
        ("s3a://lake/x/in/out", None, False, "--out must be outside the tables that are read"),
        ("s3a://lake/x", None, True, "--out must be outside the tables that are read"),
        ("s3a://lake/x", None, False, ""),
        ("s3a://lake/out", "s3a://lake/x/in/bad", False, "--rejects must be outside the tables"),
        ("delta:/out", "delta:/out", False, "--rejects must be apart from the other outputs, got"),
        ("/out/events", "/out", True, "--rejects must be apart from the other outputs"),
        ("/out", "/out/bad", True, ""),
        ("/out", "/bad", True, ""),
    ],
)
def test_results_do_not_replace_each_other_or_the_input(
    out: str, rejects: str | None, *, are_replaced: bool, reason: str
) -> None:
    """A job that overwrites a folder deletes what is inside it."""
    outputs = {"--out": out} | ({} if rejects is None else {"--rejects": rejects})
    outputs = {
        option: uri.replace("s3a://out", "s3a://lake/out") for option, uri in outputs.items()
    }
    if not reason:
        check_apart(["s3a://lake/x/in"], outputs, are_replaced=are_replaced)
        return
    with pytest.raises(BadInputError, match=reason):
        check_apart(["s3a://lake/x/in"], outputs, are_replaced=are_replaced)


@pytest.mark.posix
def test_a_place_has_one_name(tmp_path: Path) -> None:
    """A checkpoint uses this name, independent of links to the place."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = f"{tmp_path.resolve()}/real"

    assert whole_uri(f"{tmp_path}/link") == whole_uri(f"file://{tmp_path}/link") == real
    assert whole_uri(f"delta:{tmp_path}/link") == f"delta:{real}"
    assert whole_uri("s3a://lake/found") == "s3a://lake/found"
    assert whole_uri("kafka://a:1/found") == "kafka://a:1/found"


def test_jars_only_where_a_uri_needs_them() -> None:
    """A session over local files needs no jars."""
    pytest.importorskip("pyspark")

    assert connector_settings(["/a", "file:///b", "hdfs://node/c"]) == {}
    assert connector_settings(["/a"], {"spark.driver.memory": "1g"}) == {
        "spark.driver.memory": "1g"
    }


def test_coordinates_have_the_installed_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions are those of the installed packages."""
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "4.3.1")

    uris = ["kafka://a:1/t", "delta:s3a://bucket/a"]
    settings = connector_settings(uris, avro=True)

    minor = ".".join(pyspark.__version__.split(".")[:2])
    kafka, avro, delta, aws = settings["spark.jars.packages"].split(",")
    assert kafka == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    assert avro == f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
    assert delta == f"io.delta:delta-spark_{minor}_2.13:4.3.1"
    assert re.fullmatch(r"org\.apache\.hadoop:hadoop-aws:3\.\d+\.\d+", aws)
    assert "spark.sql.extensions" in settings


def test_the_first_delta_for_spark_4_has_no_suffix(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was one artifact for all versions of Spark."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "4.0.0")

    packages = connector_settings(["delta:/a"])["spark.jars.packages"]

    assert packages == "io.delta:delta-spark_2.13:4.0.0"


def test_delta_without_its_extra_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    pytest.importorskip("pyspark")
    from importlib import metadata

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)

    with pytest.raises(MissingExtraError, match=r"aiowheel\[delta\]"):
        connector_settings(["delta:/a"])


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages"])
def test_jars_of_the_user_replace_coordinates(name: str) -> None:
    """If the user names jars, no others are downloaded."""
    pytest.importorskip("pyspark")

    settings = connector_settings(["kafka://a:1/t"], {name: "mine"})

    assert settings == {name: "mine"}


UNRESOLVED = """\
:: UNRESOLVED DEPENDENCIES         ::
: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: \
org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found, download failed: \
a.b#c;1.1.3.Final!c.jar]
"""


def test_a_failed_download_is_named() -> None:
    """The error is one line, with the coordinates and the settings for others."""
    text = missing_connectors(UNRESOLVED)

    assert text is not None
    assert text.startswith(
        "Spark cannot download org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.9, a.b:c:1.1.3.Final:"
    )
    assert "--conf spark.jars.packages=GROUP:NAME:VERSION" in text
    assert "\n" not in text
    assert missing_connectors("JAVA_HOME is not set") is None


NOWHERE = """
import os
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.session import open_session
conf = {
    "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.9",
    "spark.jars.ivySettings": os.path.abspath("ivy.xml"),
}
try:
    with open_session(driver_memory="512m", conf=conf):
        pass
except AiowheelError as error:
    print(error)
"""
EMPTY_REPOSITORY = """
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><filesystem name="here"><ivy pattern="/nowhere/[artifact]"/></filesystem></resolvers>
</ivysettings>
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_missing_coordinate_is_named(needs_spark: None, tmp_path: Path) -> None:
    """The error is one line with the coordinates."""
    (tmp_path / "ivy.xml").write_text(EMPTY_REPOSITORY)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    done = subprocess.run(
        [sys.executable, "-c", NOWHERE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )

    assert done.stdout.startswith(
        "Spark cannot download org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.9: "
    ), done.stderr
