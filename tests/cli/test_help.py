"""The lists of commands in the help of `aiowheel`, `aiowheel bench` and `aiowheel durable`."""

import pytest

from aiowheel.cli import run

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize("arguments", [[], ["bench"], ["durable"]], ids=" ".join)
def test_no_summary_is_cut_off(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has one whole sentence on a line of 80 columns."""
    assert run([*arguments, "--help"]) == 0

    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert len(listed) > 5
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []
    assert max(map(len, listed)) < 80


def test_the_list_begins_with_what_every_installation_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The demo and the benchmarks need a checkout."""
    assert run(["--help"]) == 0

    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    names = [line.split()[0] for line in listed]
    assert names[:3] == ["idle", "serve", "durable"]
    assert names[-2:] == ["demo", "bench"]
