"""The options of Kafka's client, from a file as Kafka's own commands take it."""

from pathlib import Path

import pytest

from aiowheel.cli import run
from aiowheel.errors import BadInputError

pytestmark = pytest.mark.one_build

FILE = """\
# The cluster for tests.
bootstrap.servers=elsewhere:9092
security.protocol = SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="alice" \\
  password="a=b\\u0020c";
client.dns.lookup: use_all_dns_ips
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a file that does not exist yet."""
    return tmp_path / "client.properties"


def read(file: Path) -> dict[str, str]:
    """Read *file*; skip without the extra."""
    pytest.importorskip("javaproperties")
    from aiowheel.jobs.spark.client_properties import read_client_properties

    return read_client_properties(file)


def test_a_file_of_java_properties(file: Path) -> None:
    """Lines are joined and escapes replaced, as Java does; the servers are those of the URI."""
    file.write_text(FILE)

    assert read(file) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="a=b c";'
        ),
        "kafka.client.dns.lookup": "use_all_dns_ips",
    }


def test_what_the_job_sets_itself_is_refused(file: Path) -> None:
    """With another isolation level, the rows of aborted transactions would be read."""
    file.write_text("isolation.level=read_uncommitted\ngroup.id=secret\nacks=all\n")

    with pytest.raises(BadInputError, match=r": group\.id, isolation\.level: aio") as found:
        read(file)
    assert "secret" not in str(found.value)


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    """A folder, a missing file, and an escape that Java refuses as well."""
    with pytest.raises(BadInputError, match=r"client\.properties: No such file"):
        read(file)
    file.write_text(r"a=\u12x4")
    with pytest.raises(BadInputError, match=r"client\.properties: a backslash and u must precede"):
        read(file)
    with pytest.raises(BadInputError, match=": Is a directory"):
        read(file.parent)


@pytest.mark.parametrize(
    "command",
    [
        ["idle", "touches.csv", "--timeout", "1", "--out", "idle.csv"],
        ["purgatory", "ops", "s3a://lake/events", "--engine", "spark", "--out", "found"],
    ],
)
def test_a_command_without_a_topic_refuses_it(
    command: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the options would have no effect."""
    file.write_text(FILE)

    assert run([*command, "--kafka-config", str(file)]) == 2
    assert "--kafka-config is for kafka://HOST:PORT/TOPIC" in capsys.readouterr().err


def test_the_options_are_not_part_of_a_repr() -> None:
    """A traceback with local variables, or a log line, would show a password."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.spark.kafka import TopicRecords
    from aiowheel.jobs.spark.sources import Source
    from aiowheel.jobs.spark.uris import Topic

    options = {"kafka.sasl.jaas.config": "secret"}

    assert "secret" not in repr(Source("kafka://h:1/t", options=options))
    assert "secret" not in repr(TopicRecords(Topic("h:1", "t"), ("key",), options))
