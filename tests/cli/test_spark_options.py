"""The options of all commands that run Spark."""

import pytest

from aiowheel.cli._options import parse_conf
from aiowheel.errors import AiowheelError, BadInputError

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
