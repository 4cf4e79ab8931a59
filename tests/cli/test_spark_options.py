"""The options of every command that runs Spark."""

import pytest

from aiowheel.cli._spark_options import parse_conf
from aiowheel.errors import AiowheelError, BadInputError

pytestmark = pytest.mark.one_build


def test_settings_are_pairs() -> None:
    """A value may hold an equals sign; of one key given twice the last counts."""
    given = ["spark.a=1", "spark.b=-Dx=y", "spark.a=2", " spark.c ="]

    assert parse_conf(given) == {"spark.a": "2", "spark.b": "-Dx=y", "spark.c": ""}
    assert parse_conf(None) == {}


@pytest.mark.parametrize("pair", ["spark.a", "=1", ""])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    """With the text that was given."""
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
def test_a_master_that_is_none_is_refused_at_once(
    master: str, kind: type[AiowheelError], reason: str
) -> None:
    """Spark would look for it for a minute, and then tell it in a page."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.spark.session import open_session

    with pytest.raises(kind, match=reason), open_session(master=master):
        pass
