"""The options of all commands that run Spark."""

import socket
from pathlib import Path

import pytest

from aiowheel.cli._session import parse_conf, spark_session
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.jobs.spark.brokers import check_brokers

pytestmark = pytest.mark.one_build


def test_settings_are_pairs() -> None:
    """A value may contain an equals sign; the last value of a key counts."""
    given = ["spark.a=1", "spark.b=-Dx=y", "spark.a=2", " spark.c ="]

    assert parse_conf(given) == {"spark.a": "2", "spark.b": "-Dx=y", "spark.c": ""}
    assert parse_conf(None) == {}


@pytest.mark.parametrize("pair", ["spark.a", "=1", ""])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    """The error has the given text."""
    with pytest.raises(BadInputError, match="--conf must be KEY=VALUE, got "):
        parse_conf([pair])


@pytest.mark.parametrize(
    ("master", "kind", "reason"),
    [
        ("nowhere", BadInputError, r"--master must be local\[\*\].*, got 'nowhere'"),
        ("local[x]", BadInputError, "got 'local"),
        ("local[0]", BadInputError, "got 'local"),
        ("spark://somewhere", BadInputError, "got 'spark://somewhere'"),
        ("spark://127.0.0.1:9", AiowheelError, "no Spark master answers at 127.0.0.1:9: "),
        ("spark://127.0.0.1:99999", AiowheelError, "no Spark master answers at "),
        (
            "spark://127.0.0.1:9,127.0.0.1:99999",
            AiowheelError,
            "no Spark master answers at 127.0.0.1:9: .+; 127.0.0.1:99999: ",
        ),
    ],
)
def test_a_malformed_master_is_refused_at_once(
    master: str, kind: type[AiowheelError], reason: str
) -> None:
    """Spark would try to connect for a minute, and then print many lines."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.spark.session import open_session

    with pytest.raises(kind, match=reason), open_session(master=master):
        pass


def test_a_kafka_that_does_not_answer_is_named_at_once() -> None:
    """Kafka's client would try to connect for three minutes, and then not name the address."""
    pytest.importorskip("pyspark")
    topic = "kafka://127.0.0.1:9,[::1]:9/touches"
    reason = r"no Kafka broker answers at 127\.0\.0\.1:9: .+, \[::1\]:9: .+"

    with (
        pytest.raises(AiowheelError, match=reason),
        spark_session("tests", uris=["s3a://lake/ops", topic]),
    ):
        pass


def test_one_server_of_a_kafka_that_answers_is_enough() -> None:
    """Kafka's client finds the other servers by the first one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        check_brokers([f"kafka://127.0.0.1:9,127.0.0.1:{port}/touches", "folder"])


def test_a_standby_master_may_be_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session starts if one of several masters answers; here it then finds no Java."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.spark import environment, session

    def find_java() -> str:
        raise MissingExtraError("spark")

    monkeypatch.setattr(environment, "find_java", find_java)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        masters = f"spark://127.0.0.1:9,127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(MissingExtraError), session.open_session(master=masters):
            pass


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (None, "the reason is printed above"),
        ("", "it ended without a word, as if it was killed"),
        ("Error occurred\nNo heap\n\tat a.B(C)\n", "Error occurred No heap"),
    ],
)
def test_the_error_of_a_java_that_ends_at_its_start(
    log: str | None, reason: str, tmp_path: Path
) -> None:
    """A Java that is killed prints nothing, so there is nothing above."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.spark.session import _startup_error

    if log is not None:
        (tmp_path / "spark.log").write_text(log)

    error = _startup_error(RuntimeError("[JAVA_GATEWAY_EXITED] Java exited"), tmp_path)

    assert str(error) == f"Java could not start Spark: {reason}"
