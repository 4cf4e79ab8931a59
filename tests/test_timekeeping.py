"""The fixtures that check every firing and every sleep of the suite do find violations."""

import asyncio
import time

import pytest

import aiowheel
from aiowheel import ManualTimer


def test_an_early_firing_is_noticed(early_firings: list[dict[str, object]]) -> None:
    """The fixture finds a wheel that runs ahead of its timer's clock, in both builds."""
    timer = ManualTimer()
    timer.call_later(2.0, int)

    timer._manual.wheel.open_pass(3_000_000_000)
    timer._manual.run_slice()

    assert [fields["seconds"] for fields in early_firings] == [2.0]
    early_firings.clear()


def test_a_late_firing_is_noticed(late_firings: list[ManualTimer]) -> None:
    """The fixture finds a manual timer that is a tick late, in both builds."""
    timer = ManualTimer(tick=0.001)
    timer.call_at(-0.001, int)

    timer.advance(0)

    assert late_firings == [timer]
    late_firings.clear()


@pytest.mark.overdue
def test_a_deadline_armed_in_the_past_can_be_excused() -> None:
    """The mark `overdue` switches the check off."""
    timer = ManualTimer(tick=0.001)
    timer.call_at(-1.0, int)

    timer.advance(0)

    assert timer.statistics().lateness.maximum == 1.0


@pytest.mark.realtime
async def test_a_real_sleep_is_noticed(real_sleeps: list[float]) -> None:
    """The fixture finds sleeps in the loop, on a timer of either kind, and in `time.sleep`."""
    for sleep in (asyncio.sleep, aiowheel.sleep):
        while not real_sleeps:  # if the machine stalls, the time is over before the loop sleeps
            await sleep(0.05)
        real_sleeps.clear()
    time.sleep(0.001)  # noqa: ASYNC251 - the sleep that the fixture must find

    assert real_sleeps == [0.001]


@pytest.mark.virtual_time
async def test_a_virtual_sleep_is_not_counted(real_sleeps: list[float]) -> None:
    """The fixture does not count an hour on a virtual clock."""
    await asyncio.sleep(3600)

    assert real_sleeps == []
