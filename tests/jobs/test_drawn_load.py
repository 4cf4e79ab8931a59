"""The random load of simulations: no Spark."""

import numpy as np
import pytest

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.drawn_load import Waits, draw
from aiowheel.jobs.wheels.feed import Chunk
from aiowheel.jobs.wheels.run import NEVER

pytestmark = pytest.mark.one_build

MS = 1_000_000
WAITS = Waits.from_quantiles(0.02, 0.06)


def drawn(operations: int, *, seed: int = 1, shard: int = 0) -> list[Chunk]:
    """Return operations at 1,000 a second, with a timeout of 200 ms."""
    load = draw(WAITS, operations=operations, rate=1_000, timeout=200 * MS, seed=seed, shard=shard)
    return list(load)


def test_the_quantiles_are_kept() -> None:
    """Half of the waits are below the first quantile, three quarters below the second."""
    assert WAITS.quantile(0.5) == pytest.approx(0.02)
    assert WAITS.quantile(0.75) == pytest.approx(0.06)
    assert WAITS.beyond(0.06) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((float("nan"), 1.0), "mu must be a finite number, got nan"),
        ((0.0, 0.0), "sigma must be above 0 and finite, got 0.0"),
        ((0.0, -1), "sigma must be above 0 and finite, got -1"),
        ((0.0, float("inf")), "sigma must be above 0 and finite, got inf"),
        ((0.0, 1.0, 1.0), "never must be from 0 to below 1, got 1.0"),
        ((0.0, 1.0, -0.1), "never must be from 0 to below 1, got -0.1"),
    ],
)
def test_waits_out_of_range_are_refused(values: tuple[float, ...], text: str) -> None:
    """A negative deviation would draw a load of other operations than the arguments say."""
    with pytest.raises(BadInputError, match=text):
        Waits(*values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.06, 0.02), "low must be above 0 and below high (0.02), got 0.06"),
        ((0.02, float("inf")), "high must be above 0 and finite, got inf"),
        ((0.0, 0.02), "low must be above 0 and below high (0.02), got 0.0"),
        ((0.02, 0.06, 0.5, 1.0), "high_share must be above 0 and below 1, got 1.0"),
        ((0.02, 0.06, 0.8, 0.75), "low_share must be above 0 and below high_share (0.75), got 0.8"),
    ],
)
def test_quantiles_out_of_range_are_refused(values: tuple[float, ...], text: str) -> None:
    """Each error names the value and the range."""
    with pytest.raises(BadInputError) as caught:
        Waits.from_quantiles(*values)
    assert str(caught.value) == text


def test_waits_that_are_no_numbers_are_refused() -> None:
    """Text and bools are no numbers."""
    for wrong in ("1", True, None):
        with pytest.raises(TypeError, match="sigma must be a number, got "):
            Waits(0.0, wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_load_follows_its_distributions() -> None:
    """100,000 operations match rate and quantiles within a percent or two."""
    chunks = drawn(100_000)
    created = np.concatenate([chunk.created for chunk in chunks])
    waits = np.concatenate([chunk.ends - chunk.created for chunk in chunks])

    assert len(created) == 100_000
    assert created[-1] == pytest.approx(100e9, rel=0.02)
    assert np.quantile(waits, 0.5) == pytest.approx(20 * MS, rel=0.03)
    assert np.quantile(waits, 0.75) == pytest.approx(60 * MS, rel=0.03)
    assert all((chunk.deadlines - chunk.created == 200 * MS).all() for chunk in chunks)


def test_a_longer_load_begins_like_a_shorter_one() -> None:
    """The numbers depend neither on the number of operations nor on the chunks."""
    short, long = drawn(70_000), drawn(140_000)
    created = np.concatenate([chunk.created for chunk in long])
    ends = np.concatenate([chunk.ends for chunk in long])

    assert (created[:70_000] == np.concatenate([chunk.created for chunk in short])).all()
    assert (ends[:70_000] == np.concatenate([chunk.ends for chunk in short])).all()


def test_seeds_and_shards_draw_different_numbers() -> None:
    """Different seeds and shards have different sequences."""
    firsts = {
        (int(chunk.created[0]), int(chunk.ends[0]))
        for seed in (0, 1, 2)
        for shard in (0, 1, 2)
        for chunk in drawn(10, seed=seed, shard=shard)
    }

    assert len(firsts) == 9


def test_a_seed_draws_the_same_load_everywhere() -> None:
    """The first numbers of seed 1 equal the recorded ones."""
    (chunk,) = drawn(3)

    assert chunk.created.tolist() == [376_560, 2_753_322, 3_097_844]
    assert chunk.ends.tolist() == [47_411_241, 5_888_490, 10_157_893]


def test_a_share_never_completes() -> None:
    """The times of the others are those of a load in which all complete."""
    (some,) = draw(
        Waits(WAITS.mu, WAITS.sigma, never=0.26),
        operations=50_000,
        rate=1_000,
        timeout=200 * MS,
        seed=1,
        shard=0,
    )
    (every,) = drawn(50_000)
    never = some.ends == NEVER

    assert never.mean() == pytest.approx(0.26, abs=0.01)
    assert (some.created == every.created).all()
    assert (some.ends[~never] == every.ends[~never]).all()


def test_the_operations_that_never_complete_differ_between_seeds_and_shards() -> None:
    """Seeds are not converted to floats, which would be equal for neighbouring seeds."""
    waits = Waits(WAITS.mu, WAITS.sigma, never=0.5)
    found = {
        bytes(chunk.ends == NEVER)
        for seed in (0, 1, 2**62)
        for shard in (0, 1)
        for chunk in draw(waits, operations=64, rate=1, timeout=MS, seed=seed, shard=shard)
    }

    assert len(found) == 6


def test_operations_that_never_complete_exceed_every_time() -> None:
    """Quantiles are those of the operations that complete."""
    waits = Waits(WAITS.mu, WAITS.sigma, never=0.2)

    assert waits.quantile(0.5) == pytest.approx(0.02)
    assert waits.beyond(0.06) == pytest.approx(0.2 + 0.8 * 0.25)
    assert waits.beyond(1e9) == pytest.approx(0.2)
