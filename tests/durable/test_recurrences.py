"""The occurrences of recurring timers, across changes of the clock and without a process."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aiowheel.durable import Cron, DurableTimers, Fire, MemoryStore, Retry
from aiowheel.durable._instants import LAST_US, to_datetime, to_us
from aiowheel.durable._recurrence import Recurrence, recurrence_from, recurrence_of

pytestmark = pytest.mark.one_build

SECOND = 1_000_000

PARIS = ZoneInfo("Europe/Paris")


def after(cron: Cron, us: int) -> int:
    """Return the first occurrence after an instant."""
    found = cron.after(us)
    assert found is not None
    return found


def occurrences(expression: str, start: datetime, count: int) -> list[str]:
    """Return the next occurrences in Paris, as wall clock time and offset."""
    cron = Cron(expression, tz="Europe/Paris")
    found: list[str] = []
    us = to_us("start", start)
    for _ in range(count):
        us = after(cron, us)
        found.append(to_datetime(us).astimezone(PARIS).strftime("%d %H:%M %z"))
    return found


def test_a_fixed_time_follows_the_wall_clock() -> None:
    """A timer at three occurs at three before and after the change."""
    spring = datetime(2026, 3, 28, 0, 0, tzinfo=PARIS)

    assert occurrences("0 3 * * *", spring, 3) == [
        "28 03:00 +0100",
        "29 03:00 +0200",
        "30 03:00 +0200",
    ]


def test_a_time_that_spring_skips_is_made_up_for_after_the_gap() -> None:
    """It occurs once, in the first minute after the gap."""
    spring = datetime(2026, 3, 28, 12, 0, tzinfo=PARIS)

    assert occurrences("30 2 * * *", spring, 2) == ["29 03:00 +0200", "30 02:30 +0200"]


def test_a_time_that_autumn_shows_twice_occurs_once() -> None:
    """It occurs at the first of the two times."""
    autumn = datetime(2026, 10, 24, 12, 0, tzinfo=PARIS)

    assert occurrences("30 2 * * *", autumn, 2) == ["25 02:30 +0200", "26 02:30 +0100"]


def test_a_star_follows_elapsed_time() -> None:
    """It occurs in both repeated hours in autumn, and not in the skipped hour in spring."""
    autumn = datetime(2026, 10, 25, 1, 40, tzinfo=PARIS)
    spring = datetime(2026, 3, 29, 1, 40, tzinfo=PARIS)

    assert occurrences("*/30 * * * *", autumn, 5) == [
        *("25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100"),
        "25 03:00 +0100",
    ]
    assert occurrences("*/30 * * * *", spring, 2) == ["29 03:00 +0200", "29 03:30 +0200"]


@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "*/7 * * * *", "0,30 2,3 * * *", "0 12 * * MON"]
)
def test_the_latest_occurrence_is_the_one_before_the_next(expression: str) -> None:
    """This also holds around changes of the clock."""
    cron = Cron(expression, tz="Europe/Paris")
    for day in (datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)):
        first = after(cron, to_us("day", day - timedelta(days=20)))
        for minutes in range(0, 8 * 60, 11):
            us = to_us("instant", day + timedelta(minutes=minutes))
            latest = cron.latest(us, occurrence=first)
            assert latest <= us < after(cron, latest)


def test_the_latest_occurrence_where_a_gap_ends_within_a_minute() -> None:
    """In 1972, the clocks of Monrovia went from 00:00:00 to 00:44:30."""
    cron = Cron("13 0 * * *", tz="Africa/Monrovia")
    change = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
    before = datetime(1972, 1, 6, 0, 57, 30, tzinfo=UTC)

    for seconds, latest in (
        *((-1, before), (0, before), (29, before)),
        *((30, change + timedelta(seconds=30)), (40_000, change + timedelta(seconds=30))),
    ):
        us = to_us("instant", change + timedelta(seconds=seconds))
        assert to_datetime(cron.latest(us, occurrence=0)) == latest


@pytest.mark.parametrize("hours", [1, 2, 6])
@pytest.mark.parametrize(
    ("tz", "changes"),
    [
        ("Pacific/Chatham", ["2026-04-04T14:00", "2026-09-26T14:00"]),  # at 03:45 and at 02:45
        ("Australia/Lord_Howe", ["2026-04-04T15:00", "2026-10-03T15:30"]),  # by half an hour
        ("Asia/Beirut", ["2026-03-28T22:00", "2026-10-24T21:00"]),  # at midnight
        ("Europe/Paris", ["2026-03-29T01:00", "2026-10-25T01:00"]),
    ],
)
def test_an_expression_that_follows_elapsed_time_has_all_instants_that_match(
    tz: str, changes: list[str], hours: int
) -> None:
    """Around each change of the clock; at a quarter to three, the search did not end."""
    zone, minute = ZoneInfo(tz), timedelta(minutes=1)
    cron = Cron(f"*/15 */{hours} * * *", tz=tz)
    for change in changes:
        start = datetime.fromisoformat(change).replace(tzinfo=UTC) - 600 * minute
        instants = [start + number * minute for number in range(1200)]
        local = [instant.astimezone(zone) for instant in instants]
        assert local[0].utcoffset() != local[-1].utcoffset()
        matching = [
            to_us("instant", instant)
            for instant, shown in zip(instants, local, strict=True)
            if shown.minute % 15 == 0 and shown.hour % hours == 0
        ]
        for last, following in pairwise(matching):
            for us in (last, last + 1, (last + following) // 2, following - 1):
                assert cron.after(us) == following
                assert cron.latest(us, occurrence=0) == last


def test_the_latest_of_two_equal_times_is_the_second_a_day_later_too() -> None:
    """The expression has no occurrence on the day after the change."""
    cron = Cron("*/15 0 1,29,30,31 * *", tz="America/Havana")
    found = cron.latest(to_us("instant", datetime(2020, 11, 2, 5, 3, tzinfo=UTC)), occurrence=0)

    assert to_datetime(found) == datetime(2020, 11, 1, 5, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "days"),
    [
        ("1-7 * MON", [1, 2, 3, 4, 5, 6, 7, 8, 15]),
        ("*/2 * MON", [1, 15, 29]),
        ("1-7 * */3", [3, 6, 7]),
        ("* * MON#2", [8]),
        ("* * 0", [7, 14, 21]),
        ("* * 7", [7, 14, 21]),
    ],
)
def test_the_two_fields_of_days(fields: str, days: list[int]) -> None:
    """One of them must match if neither begins with a star, and otherwise both."""
    start = datetime(2026, 5, 31, 12, tzinfo=PARIS)  # the first of June is a Monday
    found = occurrences(f"0 9 {fields}", start, len(days))

    assert [int(each[:2]) for each in found] == days


def test_a_range_of_one_value_with_a_step_is_that_value() -> None:
    """Programs write it; a single value with a step continues to the end of the field."""
    start = datetime(2026, 6, 1, tzinfo=PARIS)

    assert occurrences("12-12/1,30 09-09/2 8,9-9/2 * MON-MON/3", start, 5) == [
        *("01 09:12 +0200", "01 09:30 +0200"),
        *("08 09:12 +0200", "08 09:30 +0200", "09 09:12 +0200"),
    ]
    assert occurrences("0 9 9/10 * *", start, 3) == [
        *("09 09:00 +0200", "19 09:00 +0200", "29 09:00 +0200")
    ]


def test_the_search_for_an_occurrence_ends_after_fifty_years() -> None:
    """Since 1981, all times of the expression lie in the gap of spring."""
    cron = Cron("* 2 * 3 7L", tz="Europe/Berlin")
    last = datetime(1980, 3, 30, 2, 59, tzinfo=ZoneInfo("Europe/Berlin"))

    assert after(cron, 0) == to_us("first", datetime(1970, 3, 29, 1, tzinfo=UTC))
    for year, latest in ((2030, to_us("last", last)), (2031, 5)):
        us = to_us("instant", datetime(year, 6, 1, tzinfo=UTC))
        assert cron.after(us) is None
        assert cron.latest(us, occurrence=5) == latest


def test_an_expression_has_occurrences_after_the_first_instant_of_all() -> None:
    """Also in a zone whose wall clock would show the year 0."""
    first = to_us("first", datetime.min.replace(tzinfo=UTC))
    found = to_datetime(after(Cron("0 3 1 2 *", tz="America/New_York"), first))

    assert (found.year, found.month, found.day) == (1, 2, 1)


def test_a_recurrence_is_kept_as_text() -> None:
    """Equal recurrences have equal texts."""
    cron = recurrence_of(Cron(" 0  3 * * * ", tz="Europe/Paris"), "all")
    interval = recurrence_of(timedelta(hours=1), "skip")

    for recurrence in (cron, interval):
        again: Recurrence = recurrence_from(recurrence.as_text())
        assert again.as_text() == recurrence.as_text()
        assert again.rule.after(10**15, occurrence=5) == recurrence.rule.after(10**15, occurrence=5)
    assert recurrence_of(3600, "skip").as_text() == interval.as_text()


@pytest.mark.parametrize(
    ("expression", "tz", "text"),
    [
        ("0 3 * *", "UTC", "five fields"),
        ("0 0 0 3 * *", "UTC", "five fields"),
        ("61 3 * * *", "UTC", "Bad minute"),
        ("0 3 30 2 *", "UTC", "Bad day-of-month"),
        ("9-9/0 3 * * *", "UTC", "Bad minute"),
        ("9-9/2/2 3 * * *", "UTC", "Bad minute"),
        ("1-9-9/2 3 * * *", "UTC", "Bad minute"),
        ("0 3 L-L/2 * *", "UTC", "Bad day-of-month"),
        ("0 3 * * *", "Europe/Nowhere", "tz must be a name of the time zone database"),
        ("0 3 * * *", "../etc/passwd", "tz must be a name"),
    ],
)
def test_a_wrong_expression_is_refused(expression: str, tz: str, text: str) -> None:
    """The constructor raises."""
    with pytest.raises(ValueError, match=text):
        Cron(expression, tz=tz)


@pytest.mark.parametrize("rule", [0, -1, float("inf"), 0.0001, timedelta(days=36_500)])
def test_a_wrong_interval_is_refused(rule: Any) -> None:
    """An interval must be at least a millisecond, and at most 73 years."""
    text = r"rule must be a Cron, or from 0\.001 to 2\.3e9 seconds, which are 73 years, got "
    with pytest.raises(ValueError, match=text + re.escape(repr(rule))):
        recurrence_of(rule, "all")


def test_an_interval_that_is_no_number_is_refused() -> None:
    """The error is that of all durations."""
    with pytest.raises(ValueError, match="rule must be"):
        recurrence_of(float("nan"), "all")


def test_an_expression_without_cron_is_refused() -> None:
    """The error names the class that takes it."""
    with pytest.raises(TypeError, match="rule must be a Cron or a number of seconds, got text"):
        recurrence_of("0 3 * * *", "all")


# --- in DurableTimers -------------------------------------------------------------------------


class Log:
    """A handler that records, in hours since the start, the time of each fire and its due time."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.hours: list[tuple[float, float]] = []
        self.ids: list[str] = []

    def __call__(self, fire: Fire) -> None:
        """Note."""
        due = (fire.due - self.start) / timedelta(hours=1)
        self.hours.append((asyncio.get_running_loop().time() / 3600, due))
        self.ids.append(fire.id)


START = datetime(2026, 1, 1, tzinfo=UTC)


def made(store: MemoryStore, log: Any) -> DurableTimers:
    """Return timers with one handler."""
    timers = DurableTimers(store)
    timers.handler("h", retry=Retry(2, backoff=60, jitter=0))(log)
    return timers


@pytest.mark.virtual_time
async def test_an_interval_does_not_drift() -> None:
    """The occurrences stay on the grid, and each has its own fire id."""
    log = Log(START)
    async with made(MemoryStore(start=START), log) as timers:
        assert await timers.every("e", "h", 3600)
        await asyncio.sleep(5.5 * 3600)

    assert log.hours == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert len(set(log.ids)) == 5


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("all", [(1, 1), (4.5, 2), (4.5, 3), (4.5, 4), (5, 5)]),
        ("latest", [(1, 1), (4.5, 4), (5, 5)]),
        ("skip", [(1, 1), (5, 5)]),
    ],
)
@pytest.mark.parametrize("rule", [3600, Cron("0 */1 * * *")])
async def test_missed_occurrences(
    missed: Any, expected: list[tuple[float, float]], rule: Any
) -> None:
    """No process ran from 1:30 to 4:30; *missed* decides which of these occurrences fire."""
    store, log = MemoryStore(start=START), Log(START)
    async with made(store, log) as timers:
        await timers.every("e", "h", rule, missed=missed)
        await asyncio.sleep(1.5 * 3600)
    await asyncio.sleep(3 * 3600)
    async with made(store, log) as timers:
        assert not await timers.every("e", "h", rule, missed=missed)  # as at each start
        await asyncio.sleep(3600)

    assert log.hours == expected


@pytest.mark.virtual_time
@pytest.mark.parametrize(("missed", "due"), [("latest", 4), ("all", 1)])
async def test_a_repeat_has_the_same_id_and_perhaps_a_later_due_time(missed: Any, due: int) -> None:
    """The process ended during the handler; with "latest", only the pair names the occurrence."""
    store, log = MemoryStore(start=START), Log(START)

    async def endless(fire: Fire) -> None:
        log(fire)
        await asyncio.Event().wait()

    for hours in (1.5, 0.5):
        async with made(store, endless) as timers:
            await timers.every("e", "h", 3600, missed=missed)
            await asyncio.sleep(hours * 3600)
            await timers.aclose(drain=0)
        await asyncio.sleep(3 * 3600)

    assert log.hours == [(1, 1), (4.5, due)]
    assert len(set(log.ids)) == 1


@pytest.mark.virtual_time
async def test_an_occurrence_that_fails_does_not_stop_the_recurrence() -> None:
    """The failed occurrence becomes a dead letter, and the next one is on the grid."""
    hours: list[float] = []

    def failing(_: Fire) -> None:
        hours.append(asyncio.get_running_loop().time() / 3600)
        raise ValueError

    async with made(MemoryStore(start=START), failing) as timers:
        await timers.every("e", "h", 3600)
        await asyncio.sleep(2.5 * 3600)
        letters = [letter async for letter in timers.dead_letters()]

        minute = 1 / 60
        assert hours == pytest.approx([1, 1 + minute, 2, 2 + minute])
        assert [letter.due for letter in letters] == [START + timedelta(hours=n) for n in (1, 2)]
        assert await timers.redrive(letters[0])
        await asyncio.sleep(1)
        assert hours[4:] == pytest.approx([2.5])


@pytest.mark.virtual_time
@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_dead_letter_was_due_when_its_fire_was(attempts: int) -> None:
    """One fire stands for three missed occurrences, and is due at the last of them."""
    store = MemoryStore(start=START)
    due: list[datetime] = []

    def failing(fire: Fire) -> None:
        due.append(fire.due)
        raise ValueError

    def opened() -> DurableTimers:
        timers = DurableTimers(store)
        timers.handler("h", retry=Retry(attempts, backoff=1))(failing)
        return timers

    async with opened() as timers:
        await timers.every("e", "h", 3600, missed="latest")
    await asyncio.sleep(3.5 * 3600)
    async with opened() as timers:
        await asyncio.sleep(60)
        letters = [letter async for letter in timers.dead_letters()]

    assert due == [START + timedelta(hours=3)] * attempts
    assert [letter.due for letter in letters] == due[:1]


@pytest.mark.virtual_time
async def test_every_replaces_a_recurrence_that_differs() -> None:
    """A different rule replaces the timer, `first` begins the grid, and `cancel` ends it."""
    log = Log(START)
    async with made(MemoryStore(start=START), log) as timers:
        assert await timers.every("e", "h", 3600)
        assert await timers.every("e", "h", 7200, first=timedelta(hours=1))
        assert not await timers.every("e", "h", 7200, first=timedelta(hours=5))
        await asyncio.sleep(4 * 3600)
        assert await timers.cancel("e")
        await asyncio.sleep(10 * 3600)

    assert [hour for hour, _ in log.hours] == [1, 3]


@pytest.mark.virtual_time
async def test_a_wrong_first_occurrence_is_named_so() -> None:
    """The error names the argument of `every`."""
    async with made(MemoryStore(start=START), Log(START)) as timers:
        with pytest.raises(ValueError, match="first must be a datetime with a time zone"):
            await timers.every("e", "h", 60, first=START.replace(tzinfo=None))
        with pytest.raises(TypeError, match="first must be an aware datetime or a timedelta"):
            await timers.every("e", "h", 60, first=5)  # type: ignore[arg-type]


LAST = datetime(9999, 12, 31, 18, tzinfo=UTC)


@pytest.mark.virtual_time
@pytest.mark.parametrize("missed", ["all", "latest", "skip"])
@pytest.mark.parametrize(
    "rule", [3600, Cron("0 */1 * * *"), Cron("0 * * * *", tz="Asia/Tokyo")], ids=str
)
async def test_a_recurrence_ends_with_the_year_9999(
    rule: Any, missed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last occurrence is the last one that a datetime can show, in UTC and in its time zone."""
    log = Log(LAST)
    last = -4 if getattr(rule, "tz", "UTC") == "Asia/Tokyo" else 5
    async with made(MemoryStore(start=LAST - timedelta(hours=4)), log) as timers:
        await timers.every("e", "h", rule, missed=missed, first=LAST - timedelta(hours=4))
        await asyncio.sleep(9.9 * 3600)

        assert await timers.get("e") is None
        assert [due for _, due in log.hours][-1] == last

    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("expression", ["0 */1 * * *", "0 0-23 * * *"])
@pytest.mark.parametrize(
    ("tz", "last"), [("UTC", 23), ("Asia/Tokyo", 14), ("Pacific/Honolulu", 23)]
)
def test_the_latest_occurrence_on_the_last_day(expression: str, tz: str, last: int) -> None:
    """Of the year 9999; the hour of *last* is the last one that the time zone can show."""
    cron = Cron(expression, tz=tz)
    for hour in range(24):
        us = to_us("instant", LAST.replace(hour=hour, minute=7))
        latest = LAST.replace(hour=min(hour, last))
        assert to_datetime(cron.latest(us, occurrence=0)) == latest
    assert to_datetime(cron.latest(LAST_US, occurrence=0)) == LAST.replace(hour=last)


@pytest.mark.virtual_time
async def test_a_rule_without_an_occurrence_is_refused() -> None:
    """Its first occurrence would be after the year 9999."""
    text = "rule must occur within 50 years and before the year 10000, got "
    async with made(MemoryStore(start=LAST), Log(LAST)) as timers:
        for rule in (86_400, Cron("0 0 1 1 *"), Cron("0 9 * * *", tz="Asia/Tokyo")):
            with pytest.raises(ValueError, match=text):
                await timers.every("e", "h", rule)
        assert await timers.every("e", "h", 1.5e9, first=timedelta(hours=1))


@pytest.mark.virtual_time
async def test_an_expression_whose_times_a_zone_skips_is_refused() -> None:
    """The constructor accepts it, because in 1970 the zone had no daylight saving time."""
    text = "rule must occur within 50 years and before the year 10000, got Cron"
    async with made(MemoryStore(start=START), Log(START)) as timers:
        with pytest.raises(ValueError, match=text):
            await timers.every("e", "h", Cron("*/30 2 * 3 7L", tz="Europe/Berlin"))


def test_an_occurrence_is_skipped_from_its_successor_on() -> None:
    """At the very time of the next occurrence, or a minute late, it does not fire any more."""
    often, seldom = recurrence_of(10, "skip"), recurrence_of(3600, "skip")

    assert often.to_fire(0, 10 * SECOND - 1) == 0
    assert often.to_fire(0, 10 * SECOND) is None
    assert seldom.to_fire(0, 60 * SECOND - 1) == 0
    assert seldom.to_fire(0, 60 * SECOND) is None
