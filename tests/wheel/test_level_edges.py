"""Deadlines and clocks at, and one tick beside, every edge of every level."""

from collections.abc import Callable

import pytest

from aiowheel.wheel import TimerEntry, TimingWheel

Expire = Callable[[TimingWheel, int, int], list[tuple[int, TimerEntry]]]

WHEEL_SIZES = [2, 20, 64, 256, 1000]
STARTS = [0, 2**30, 2**31, 2**36, 2**53]
# Every size of a wheel and every start; the ordinary run has large wheels with two starts only.
SIZES_AND_STARTS = [
    pytest.param(
        wheel_size,
        start,
        marks=[] if wheel_size <= 64 or start in {0, 2**31} else [pytest.mark.thorough],
    )
    for start in STARTS
    for wheel_size in WHEEL_SIZES
]


def edges(wheel_size: int, levels: int) -> list[int]:
    """Return the ticks at, and one beside, the edges of the slots and blocks of each level."""
    spans = [wheel_size**level for level in range(levels + 1)]
    multiples = [span * times for span in spans for times in (1, 2, wheel_size - 1)]
    return sorted({tick + beside for tick in multiples for beside in (-1, 0, 1)})


@pytest.mark.parametrize("wheel_size", WHEEL_SIZES)
@pytest.mark.parametrize("tick", [1, 10])
def test_a_deadline_at_an_edge_expires_at_that_tick(
    expire: Expire, wheel_size: int, tick: int
) -> None:
    """All edges of four levels are armed at time 0."""
    wheel = TimingWheel(tick, wheel_size)
    ticks = [each for each in edges(wheel_size, 4) if each > 0]
    for each in ticks:
        wheel.schedule(each * tick, each * tick)

    expired = expire(wheel, tick, 2 * max(ticks) * tick)

    assert [(at, entry.payload) for at, entry in expired] == [
        (each * tick, each * tick) for each in ticks
    ]


@pytest.mark.parametrize(("wheel_size", "base"), SIZES_AND_STARTS)
def test_a_clock_that_starts_beside_an_edge_counts_right(
    expire: Expire, wheel_size: int, base: int
) -> None:
    """Slot - 1, slot and slot + 1 of each level, also after 12, 24 days and 2 years in ms."""
    for start in (base + edge for edge in edges(wheel_size, 3)):
        wheel = TimingWheel(1, wheel_size, start)
        delays = [
            1,
            2,
            wheel_size - 1,
            wheel_size,
            wheel_size + 1,
            wheel_size**2,
            wheel_size**2 + 1,
        ]
        for delay in delays:
            wheel.schedule(start + delay, start + delay)

        expired = expire(wheel, 1, start + 2 * wheel_size**2)

        assert [at for at, _ in expired] == sorted(start + delay for delay in delays)
        assert all(at == entry.payload for at, entry in expired)


@pytest.mark.parametrize(("wheel_size", "base"), SIZES_AND_STARTS)
def test_a_wheel_that_ran_to_an_edge_counts_right(
    expire: Expire, wheel_size: int, base: int
) -> None:
    """The same for a wheel that was advanced to the edge, with other entries pending."""
    far = base + wheel_size**4
    for edge in edges(wheel_size, 2):
        wheel = TimingWheel(1, wheel_size)
        wheel.schedule(far, "far")
        now = base + edge
        wheel.advance(now)
        for delay in (1, wheel_size - 1, wheel_size, wheel_size + 1):
            wheel.schedule(now + delay, now + delay)

        expired = expire(wheel, 1, now + 2 * wheel_size)

        assert [at for at, entry in expired if entry.payload != "far"] == sorted(
            now + delay for delay in (1, wheel_size - 1, wheel_size, wheel_size + 1)
        )


def test_each_of_1024_ticks_expires_in_its_turn(expire: Expire) -> None:
    """There is one entry for each tick, across the slot edges of two levels."""
    wheel = TimingWheel(wheel_size=64)
    for deadline in range(1024):
        wheel.schedule(deadline, deadline)

    expired = expire(wheel, 1, 1023)

    assert [(at, entry.payload) for at, entry in expired] == [(each, each) for each in range(1024)]


@pytest.mark.parametrize("now", [62, 63, 64, 127, 128, 192])
def test_advancing_to_an_edge_twice_changes_nothing(now: int) -> None:
    """The entry at 193 in the level above is neither early nor lost."""
    wheel = TimingWheel(wheel_size=64)
    entry = wheel.schedule(193)

    assert wheel.advance(now) == []
    assert wheel.advance(now) == []
    assert wheel.advance(192) == []
    assert wheel.advance(193) == [entry]


@pytest.mark.parametrize("wheel_size", [64, 256])
def test_the_level_fits_the_distance(wheel_size: int) -> None:
    """A deadline within the level's span stays there; one at the span needs one more level."""
    for level in (1, 2, 3, 4):
        span = wheel_size**level
        for deadline, levels in ((span - 1, level), (span, level + 1), (span + 1, level + 1)):
            wheel = TimingWheel(1, wheel_size)
            wheel.schedule(deadline)

            assert wheel.statistics().levels == levels


@pytest.mark.parametrize("armed_at", [128, 255, 256, 257])
def test_a_full_turn_less_one_is_not_early(expire: Expire, armed_at: int) -> None:
    """A delay of 255 ticks uses the slot just behind the present one, one turn later."""
    wheel = TimingWheel(wheel_size=256)
    wheel.advance(armed_at)
    wheel.schedule(armed_at + 255)

    assert [at for at, _ in expire(wheel, 1, armed_at + 1000)] == [armed_at + 255]


def test_an_earlier_deadline_in_a_coarse_level_is_not_hidden_by_a_later_fine_one() -> None:
    """300 was filed one level up, 310 later in the first level: 300 comes first."""
    wheel = TimingWheel(wheel_size=256)
    early = wheel.schedule(300)
    wheel.advance(200)
    late = wheel.schedule(310)

    upcoming = wheel.next_expiration()

    assert upcoming is not None
    assert upcoming <= 300
    assert wheel.advance(305) == [early]
    assert wheel.advance(310) == [late]


@pytest.mark.parametrize("wheel_size", [2, 16, 256])
def test_an_entry_one_turn_ahead_in_the_present_slot_is_not_due(
    expire: Expire, wheel_size: int
) -> None:
    """The present slot may hold entries due one turn later; the search starts after it."""
    start = wheel_size * 5 + 1
    wheel = TimingWheel(1, wheel_size, start)
    wheel.schedule(start + wheel_size)
    wheel.schedule(start + wheel_size**2)

    expired = expire(wheel, 1, start + wheel_size**3)

    assert [at - start for at, _ in expired] == [wheel_size, wheel_size**2]


@pytest.mark.parametrize("tick", [100_000, 1_000_000, 10_000_000, 1_000_000_000])
@pytest.mark.parametrize("wheel_size", WHEEL_SIZES)
@pytest.mark.parametrize("uptime_days", [0, 200, 7305])
def test_nanosecond_clocks_of_any_uptime_and_tick(
    expire: Expire, tick: int, wheel_size: int, uptime_days: int
) -> None:
    """Ticks of 0.1 ms to 1 s, up to twenty years: less than a tick late at every edge."""
    start = uptime_days * 86_400 * 10**9 + 123_456_789
    wheel = TimingWheel(tick, wheel_size, start)
    deadlines = [
        start + each * tick + beside for each in edges(wheel_size, 2) for beside in (-1, 0, 1)
    ]
    for deadline in deadlines:
        wheel.schedule(deadline)

    expired = expire(wheel, tick, max(deadlines) + tick)

    assert len(expired) == len(deadlines)


def test_the_furthest_deadlines_are_kept() -> None:
    """The deadlines at both ends of the legal range do not wrap."""
    limit = 2**61 - 1
    wheel = TimingWheel(1, 256, -limit)
    entry = wheel.schedule(limit)

    assert wheel.advance(limit - 1) == []
    assert wheel.next_expiration() == limit
    assert wheel.advance(limit) == [entry]


def test_a_wheel_alive_for_two_years_of_milliseconds_takes_a_short_timer() -> None:
    """After 2**36 ticks a delay of 1 is still a delay of 1."""
    wheel = TimingWheel(wheel_size=64)
    wheel.advance(2**36)
    entry = wheel.schedule(2**36 + 1)

    assert wheel.next_expiration() == 2**36 + 1
    assert wheel.advance(2**36 + 1) == [entry]
