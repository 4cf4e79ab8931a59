"""A simulation is repeatable, finds failures and reduces them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from aiowheel._build import build_info
from aiowheel.errors import BadInputError, VirtualDeadlockError
from aiowheel.testing.simulation import (
    COMMON_FAULTS,
    InjectedError,
    SimulationFailedError,
    SimulationWheelLoop,
    World,
    explore,
    shrink,
    simulate,
    step,
)
from aiowheel.testing.simulation.__main__ import main
from aiowheel.testing.simulation._command import (
    name_of,
    steps_from_text,
    steps_to_text,
    world_named,
)
from aiowheel.testing.simulation._loop import TooManyTurnsError

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
#: Prints a digest of the traces of a few seeds of every world.
DIGEST = """
import hashlib
from aiowheel.testing.simulation import simulate
from aiowheel.testing.simulation._command import world_named
from aiowheel.testing.simulation.worlds import WORLDS
digest = hashlib.sha256()
for name in [*WORLDS, "tests.durable.world:DurableWorld"]:
    for seed in range(2):
        digest.update(simulate(world_named(name), seed=seed, steps=30).trace)
print(digest.hexdigest())
"""

#: A test file that imports a neighbour, with a world that breaks its rule.
STOCK = """
from aiowheel.testing.simulation import World, explore, step
from limits import MOST


class Stock(World):
    async def setup(self):
        self.pieces = 0

    @step
    def deliver(self):
        self.pieces += 1

    def check(self):
        assert self.pieces <= MOST, f"more than {MOST} in stock"


def test_stock():
    explore(Stock, seeds=range(1), faults=())
"""


FIRST_EVENT = """
import random

from aiowheel._events import emit
from aiowheel.testing.simulation import World, simulate, step


class Logging(World):
    @step
    def log(self):
        emit("event")
        self.note(f"drew {random.random()}")


first, second = (simulate(Logging, seed=1, steps=3, faults=()) for _ in range(2))
assert first.error is None
assert first.trace == second.trace
"""


class Accounts(World):
    """Two accounts; a transfer reads, waits and writes, and may lose another transfer's change."""

    async def setup(self) -> None:
        """Begin with a sum of 100."""
        self.money = {"a": 50, "b": 50}
        self.transfers = 0

    @step(weight=3)
    def transfer(self) -> None:
        """Start a transfer."""
        self.transfers += 1
        self.spawn(self.move(self.random.randint(1, 5)), f"transfer {self.transfers}")

    @step
    def look(self) -> None:
        """Note the sum."""
        self.note(f"sum {sum(self.money.values())}")

    async def move(self, amount: int) -> None:
        """Move money, with a pause in the middle."""
        before = dict(self.money)
        await asyncio.sleep(0.01)
        self.money["a"] = before["a"] - amount
        self.money["b"] += amount

    def idle(self) -> None:
        """Assert that the sum is unchanged."""
        assert sum(self.money.values()) == 100, "money was made or lost"

    def state(self) -> Hashable:
        """Return the balance of one account."""
        return self.money["a"]


class Quiet(World):
    """A world without a rule; subclasses break one of the general rules."""

    @step
    def do(self) -> object:
        """Do nothing."""
        return None


class Sets(World):
    """Clients of functions of asyncio that keep tasks and futures in sets."""

    @step
    def group(self) -> None:
        """Start a group of tasks that are cancelled in the order of a set."""
        self.spawn(self.fail_in_a_group(), "group")

    @step
    async def wait(self) -> None:
        """Wait for futures and tasks, and note the order of the set of the finished ones."""
        loop = asyncio.get_running_loop()
        names: dict[asyncio.Future[Any], str] = {}
        for number in range(6):
            names[loop.create_future()] = f"future {number}"
            names[loop.create_task(asyncio.sleep(0))] = f"task {number}"
        for each in names:
            if not isinstance(each, asyncio.Task):
                each.set_result(None)
        done, _ = await asyncio.wait(names)
        self.note(f"done: {[names[each] for each in done]}")

    @step
    async def race(self) -> None:
        """Take results in the order in which they come, and note it."""
        tasks = [self.loop.create_task(self.answer(name)) for name in "abcdef"]
        self.note("".join([await each for each in asyncio.as_completed(tasks)]))

    async def answer(self, name: str) -> str:
        """Return the name after a drawn time."""
        await asyncio.sleep(self.loop.chance.random())
        return name

    async def fail_in_a_group(self) -> None:
        """Let one of seven tasks fail while the others wait."""
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(self.member(number))
            group.create_task(self.fail())

    async def member(self, number: int) -> None:
        """Wait until the group is cancelled."""
        try:
            await asyncio.sleep(1000)
        finally:
            self.note(f"member {number} has ended")

    async def fail(self) -> None:
        """Fail after the others have begun to wait."""
        await asyncio.sleep(0.1)
        raise InjectedError("a member failed")


def run_program(
    *words: str, at: Path = ROOT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, by default in the root of the project."""
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=at,
        # The pytest of a replayed test needs none of the plugins of ours, which take a second.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **(environment or {})},
    )


# --- repeating ------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes() -> None:
    """The trace is also equal after other runs, and differs for another seed."""
    world = world_named("timer")
    first = simulate(world, seed=7)
    other = simulate(world, seed=8)
    again = simulate(world, seed=7)

    assert first.trace == again.trace
    assert first.faults == again.faults
    assert first.states == again.states
    assert first.trace != other.trace


def test_a_task_keeps_its_own_name() -> None:
    """The loops of some releases of Python 3.13 give a task of a factory the name None."""
    loop = SimulationWheelLoop(seed=1, kinds=())

    async def work() -> list[str]:
        named = loop.create_task(asyncio.sleep(0), name="of the user")
        unnamed = loop.create_task(asyncio.sleep(0))
        unnamed.set_name(None)  # as those releases do
        await asyncio.gather(named, unnamed)
        return [named.get_name(), unnamed.get_name()]

    names = loop.run_until_complete(work())
    loop.close()

    assert names[0] == "of the user"
    assert names[1].startswith("Task-")


def test_tasks_and_futures_in_sets_have_the_same_order() -> None:
    """Their hash does not depend on their addresses, which other objects in memory change."""
    others: list[list[bytearray]] = []
    traces: set[bytes] = set()
    for size in range(10):
        others.append([bytearray(100 + size) for _ in range(37 * size)])
        run = simulate(Sets, seed=2, steps=10, faults=())
        assert run.error is None
        traces.add(run.trace)

    (trace,) = traces
    assert b"member 5 has ended" in trace
    assert b"'future 5'" in trace
    assert re.search(rb"\d [a-f]{6}\n", trace)


@pytest.mark.slow
def test_every_process_and_both_builds_give_the_same_bytes() -> None:
    """The traces are equal for every seed of `hash`."""
    runs = [
        run_program("-c", DIGEST, environment={"PYTHONHASHSEED": "1"}),
        run_program("-c", DIGEST, environment={"PYTHONHASHSEED": "2"}),
    ]
    if build_info().accelerated:
        pure = {"AIOWHEEL_NO_EXTENSIONS": "1", "AIOWHEEL_REQUIRE_EXTENSIONS": ""}
        runs.append(run_program("-c", DIGEST, environment=pure))

    assert [run.stderr for run in runs] == [""] * len(runs)
    assert len({run.stdout for run in runs}) == 1


def test_the_first_run_of_a_process_gives_the_same_bytes() -> None:
    """The import of the logger at the first event of a run takes no number of the run."""
    run = run_program("-c", FIRST_EVENT)

    assert run.returncode == 0, run.stderr


def test_a_step_makes_the_same_choices_whichever_others_are_left_out() -> None:
    """A failing run can therefore be reduced."""
    whole = simulate(Accounts, seed=3, faults=())
    part = simulate(Accounts, seed=3, steps=[5, 9], faults=())
    names = {line.split(" ", 2)[2] for line in part.trace.decode().splitlines() if " step " in line}

    assert len(names) == 2
    assert all(name in whole.trace.decode() for name in names)


def test_debug_mode_does_not_log_simulated_stalls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow callbacks are measured by the clock of the loop, which a stall moves."""

    class Stalls(Quiet):
        @step
        def stall_once(self) -> None:
            self.stall(30)

    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    run = simulate(Stalls, seed=1, steps=9)

    assert run.error is None
    assert [each.getMessage() for each in caplog.records if "took" in each.getMessage()] == []


# --- finding --------------------------------------------------------------------------------


def test_a_lost_update_is_found_and_reduced() -> None:
    """The reduced run has few steps and no fault."""
    with pytest.raises(SimulationFailedError) as caught:
        explore(Accounts, seeds=range(50))
    text = str(caught.value)
    cause = caught.value.__cause__

    assert isinstance(cause, AssertionError)
    assert "money was made or lost" in text
    assert re.search(r"it needs [23] of 50 steps; faults: none", text)
    assert f"--seed {caught.value.seed}" in text.splitlines()[-1]
    assert "does not repeat" not in text


def test_a_run_that_does_not_repeat_is_named() -> None:
    """The command in the text would then show another run."""
    runs = count()

    class Counts(Quiet):
        async def setup(self) -> None:
            self.note(f"run {next(runs)}")

        def check(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(SimulationFailedError) as caught:
        explore(Counts)
    *_, hint, command = str(caught.value).splitlines()

    assert hint.startswith("this run does not repeat: a second run had another trace; see ")
    assert "replay: " in command


@pytest.mark.slow
def test_the_command_of_a_failure_replays_it() -> None:
    """Another process replays the failure with the same trace."""
    with pytest.raises(SimulationFailedError) as caught:
        explore(Accounts, seeds=range(50))
    python, *words = shlex.split(str(caught.value).splitlines()[-1].removeprefix("replay: "))
    replay = run_program(*words)

    assert python == "python"
    assert replay.returncode == 1, replay.stderr
    assert "money was made or lost" in replay.stderr
    assert all(line.strip() in str(caught.value) for line in replay.stdout.splitlines()[-3:])


@pytest.mark.slow
def test_the_command_finds_a_world_in_a_folder_of_tests(tmp_path: Path) -> None:
    """The folder is on the path of pytest, but not on that of the replaying process."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "limits.py").write_text("MOST = 0\n")
    (folder / "test_stock.py").write_text(STOCK)
    tests = run_program("-m", "pytest", "-q", "-p", "no:cacheprovider", at=tmp_path)
    # pytest repeats the whole error in its summary where the variable CI is set.
    (command,) = set(re.findall("replay: python (.*)", tests.stdout))

    replay = run_program(*shlex.split(command), at=tmp_path)

    assert f"--world {Path('tests', 'test_stock.py')}:Stock" in command
    assert replay.returncode == 1, replay.stderr
    assert "more than 0 in stock" in replay.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "at", "words", "world"),
    [
        ("shop", ".", ("shop/test_stock.py",), "shop/test_stock.py"),
        ("shop", ".", ("-m", "shop.test_stock"), "shop/test_stock.py"),
        ("shop", "shop", ("-m", "pytest", "-q", "test_stock.py"), "test_stock.py"),
        ("src/shop", ".", ("-m", "pytest", "-q", "src/shop"), "src/shop/test_stock.py"),
    ],
    ids=["run as a script", "run as a module", "tests in a package", "src layout"],
)
def test_the_command_finds_a_module_of_a_package(
    package: str, at: str, words: Sequence[str], world: str, tmp_path: Path
) -> None:
    """The module imports a neighbour, and another package has the same name."""
    other = tmp_path / "installed" / "shop"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "limits.py").write_text("MOST = 1000\n")
    folder = tmp_path / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "limits.py").write_text("MOST = 0\n")
    is_script = words[0].endswith(".py")
    source = STOCK if is_script else STOCK.replace("from limits", "from .limits")
    source += '\nif __name__ == "__main__":\n    test_stock()\n'
    (folder / "test_stock.py").write_text(source)
    path = {"PYTHONPATH": os.pathsep.join([str(other.parent), str(ROOT)])}
    run = run_program(*words, at=tmp_path / at, environment=path)
    (command,) = set(re.findall("replay: python (.*)", run.stdout + run.stderr))

    replay = run_program(*shlex.split(command), at=tmp_path / at, environment=path)

    assert f"--world {Path(world)}:Stock" in command
    assert replay.returncode == 1, replay.stderr
    assert "more than 0 in stock" in replay.stderr


class TestStock:
    """A class of tests, with the world that they run."""

    class StockWorld(Quiet):
        """A world inside another class."""

    def test_the_command_names_a_world_inside_a_class(self) -> None:
        """The program finds the class by the name in the command."""
        assert world_named(name_of(self.StockWorld)) is self.StockWorld


def test_a_world_without_an_address_is_replayed_by_a_call() -> None:
    """A command cannot find a class inside a function."""

    class Broken(Quiet):
        def check(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(SimulationFailedError) as caught:
        explore(Broken, seeds=[7])
    call = str(caught.value).splitlines()[-1].removeprefix("replay: ")

    assert re.fullmatch(r"simulate\(Broken, seed=7, steps=\[\d+\], faults=\[\]\)", call)
    assert isinstance(eval(call, {"simulate": simulate, "Broken": Broken}).error, ZeroDivisionError)


def test_a_world_of_a_program_on_standard_input_is_replayed_by_a_call() -> None:
    """The module `__main__` of another process is another one."""
    program = STOCK.replace("from limits import MOST", "MOST = 0") + "\n\ntest_stock()\n"
    run = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert run.stderr.splitlines()[-1].startswith("replay: simulate(Stock, seed=0, steps=[")


def test_a_run_that_always_fails_is_reduced_to_no_steps() -> None:
    """If a run fails without any step, no step is left."""

    class Broken(Quiet):
        def check(self) -> None:
            raise ZeroDivisionError

    run = simulate(Broken, seed=0, steps=20)
    smallest = shrink(run)

    assert isinstance(run.error, ZeroDivisionError)
    assert len(smallest.steps) == 1
    assert smallest.kinds == frozenset()


async def _wait_endlessly() -> None:
    await asyncio.Event().wait()


class Hangs(Quiet):
    """A task that waits endlessly."""

    async def setup(self) -> None:
        """Start the task."""
        self.spawn(_wait_endlessly(), "waiting")


class HidesItsError(Quiet):
    """A client that fails while another one waits for it."""

    async def setup(self) -> None:
        """Start both."""
        self.ready = asyncio.Event()
        self.spawn(self.prepare({}), "prepares")
        await self.ready.wait()

    async def prepare(self, settings: dict[str, int]) -> None:
        """Fail before the other one may continue."""
        await asyncio.sleep(settings["no such key"])
        self.ready.set()


class Spins(Quiet):
    """A task that never waits."""

    async def setup(self) -> None:
        """Start the task."""
        self.spawn(self.spin(), "spinning")

    async def spin(self) -> None:
        """Spin."""
        while True:  # noqa: ASYNC110 - it spins on purpose
            await asyncio.sleep(0)


class LeavesATask(Quiet):
    """A task that has not ended at the end."""

    async def finish(self) -> None:
        """Start the task."""
        self.forgotten = self.loop.create_task(_wait_endlessly(), name="forgotten")


class FailsInACallback(Quiet):
    """A callback that raises."""

    async def setup(self) -> None:
        """Schedule the callback."""
        self.loop.call_soon([].pop)


class FailsInATask(Quiet):
    """A client that raises."""

    async def setup(self) -> None:
        """Start the task."""
        self.spawn(self.client(), "client")

    async def client(self) -> None:
        """Raise."""
        raise KeyError


class ExitsInATask(Quiet):
    """A client that ends the program."""

    async def setup(self) -> None:
        """Start the task."""
        self.spawn(self.client(), "client")

    async def client(self) -> None:
        """Exit."""
        sys.exit(3)


class FailsInTheEnd(Quiet):
    """A world that fails after the loop was closed."""

    def closed(self) -> None:
        """Raise."""
        assert not self.loop.is_closed()


class FailsAsATest(Quiet):
    """A step that fails as a test of pytest does, with an error that is no `Exception`."""

    @step
    def divide(self) -> None:
        """Expect an error that does not come."""
        with pytest.raises(ZeroDivisionError):
            self.loop.time()


class FailsAsATestInTheEnd(Quiet):
    """A world that fails as a test of pytest does, after the loop was closed."""

    def closed(self) -> None:
        """Fail."""
        pytest.fail("closed")


class FailsWhileItCloses(Quiet):
    """A generator that raises when the loop closes it."""

    async def finish(self) -> None:
        """Start the generator."""
        self.generator = self.numbers()
        await anext(self.generator)

    async def numbers(self) -> AsyncIterator[int]:
        """Raise at the end."""
        try:
            yield 1
        finally:
            raise KeyError("closing")


class FailsAtItsCreation(Quiet):
    """A world that cannot be created."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = int("x")


@pytest.mark.parametrize(
    ("world", "kind", "text"),
    [
        (FailsAtItsCreation, ValueError, "invalid literal"),
        (FailsAsATest, pytest.fail.Exception, "DID NOT RAISE"),
        (FailsAsATestInTheEnd, pytest.fail.Exception, "closed"),
        (FailsWhileItCloses, KeyError, "closing"),
        (Hangs, VirtualDeadlockError, "waiting"),
        (HidesItsError, KeyError, "no such key"),
        (Spins, TooManyTurnsError, "took more than 100000 turns of the loop"),
        (LeavesATask, AssertionError, "not ended at the end: 1\n  forgotten in _wait"),
        (FailsInACallback, IndexError, "pop from empty list"),
        (FailsInATask, KeyError, ""),
        (ExitsInATask, SystemExit, "3"),
        (FailsInTheEnd, AssertionError, ""),
    ],
)
def test_the_general_rules(world: type[World], kind: type[BaseException], text: str) -> None:
    """A simulation checks the general rules in every world."""
    error = simulate(world, seed=0, steps=3, faults=()).error

    assert type(error) is kind
    assert text in str(error)


class Searches(Quiet):
    """A client and a step that leave asynchronous generators before their ends."""

    @step
    def search(self) -> None:
        """Start the client."""
        self.spawn(self.first(), "search")

    @step
    async def first(self) -> None:
        """Take one number; the loop closes the generator later."""
        async for _ in self.numbers():
            break

    async def numbers(self) -> AsyncIterator[int]:
        """Count slowly, and clean up in the end."""
        try:
            for number in range(10):
                await asyncio.sleep(1)
                yield number
        finally:
            await asyncio.sleep(1)


def test_a_generator_that_was_left_is_closed_before_the_end() -> None:
    """The task in which the loop closes it is not one of the world's."""
    errors = [simulate(Searches, seed=seed, steps=5).error for seed in range(40)]

    assert errors == [None] * 40


# --- what a world can do --------------------------------------------------------------------


class Clients(World):
    """Clients that faults interrupt; the trace has the errors that they get."""

    faults = COMMON_FAULTS | {"own"}

    async def setup(self) -> None:
        """Begin without seen errors."""
        self.seen: set[str] = set()

    @step
    def start(self) -> None:
        """Start a client."""
        self.spawn(self.client(), f"client {self.random.random()}")

    async def client(self) -> None:
        """Sleep, and note the error that interrupts it."""
        try:
            await asyncio.sleep(100)
        except (InjectedError, asyncio.CancelledError) as error:
            self.note(f"struck {type(error).__name__}")
            raise

    def strike(self, kind: str) -> None:
        """Note a fault of this world."""
        self.note(f"own strike {kind}")


def test_faults_strike() -> None:
    """Faults of the loop, of tasks and of the world are injected."""
    found = explore(Clients, seeds=range(40))
    traces = b"".join(simulate(Clients, seed=seed).trace for seed in range(40))

    assert set(found.faults) == Clients.faults
    assert all(each in traces for each in (b"struck InjectedError", b"struck CancelledError"))
    assert b"own strike own" in traces


@pytest.mark.parametrize("kinds", [(), ("stall",), ("own", "reorder")])
def test_only_the_allowed_faults_strike(kinds: Iterable[str]) -> None:
    """A run has only the given kinds of faults, including those of the world."""
    assert set(explore(Clients, seeds=range(20), faults=kinds).faults) <= set(kinds)


class Advances(World):
    """Calls of `advance`, with the clock stopped and with a callback that outlasts them."""

    @step
    async def frozen(self) -> None:
        """Stop the clock: only `advance` moves it, and timers fire at their own deadlines."""
        start, fired = self.loop.time(), list[float]()
        for delay in (10, 20):
            self.loop.call_later(delay, lambda: fired.append(round(self.loop.time() - start)))
        with self.loop.freeze():
            await self.loop.advance(15)
            assert fired == [10]
            await self.loop.advance(15)
        assert fired == [10, 20]

    @step
    async def stalled(self) -> None:
        """Let time pass beyond the end of an `advance`."""
        self.loop.call_later(1, self.stall, 30)
        before = self.now_ns
        await self.loop.advance(5)
        assert self.now_ns - before >= 31_000_000_000

    def check(self) -> None:
        """The clock is never set back."""
        assert self.now_ns == self.loop.peak_ns


def test_advance_moves_a_frozen_clock_and_never_sets_it_back() -> None:
    """A simulated loop obeys `freeze` and `advance` as a virtual loop does."""
    assert explore(Advances, seeds=range(10), steps=10, faults=()).runs == 10


class Stopped(Quiet):
    """A world whose clock is stopped."""

    async def setup(self) -> None:
        """Stop the clock."""
        self.loop.autojump = False


def test_a_stopped_clock_is_reported_as_a_deadlock() -> None:
    """The error has the timers that cannot fire."""
    error = simulate(Stopped, seed=0, faults=()).error

    assert isinstance(error, VirtualDeadlockError)
    assert "only advance() moves the clock" in str(error)


class Threads(World):
    """Jobs in threads, and a loop of another class."""

    loop_class = SimulationWheelLoop

    @step
    async def job(self) -> None:
        """Wait for jobs, one of which raises."""
        assert await asyncio.to_thread(sum, (1, 2)) == 3
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)

    @step
    def call(self) -> None:
        """Call from a thread."""
        assert self.in_thread(lambda: 4) == 4
        with pytest.raises(ZeroDivisionError):
            self.in_thread(lambda: 1 // 0)


def test_calls_in_threads_are_repeatable() -> None:
    """Threads run only while the loop waits, so a run can be repeated."""
    runs = [simulate(Threads, seed=1) for _ in range(2)]

    assert [run.error for run in runs] == [None, None]
    assert runs[0].trace == runs[1].trace


class Patient(Quiet):
    """A world with a low limit of turns."""

    most_turns = 1_000


def test_a_long_run_may_make_many_turns() -> None:
    """The limit of turns, which finds endless callbacks, is not one of the number of steps."""
    run = simulate(Patient, seed=1, steps=3_000, faults=[])

    assert run.error is None
    assert len(run.steps) == 3_000


class Heart(Quiet):
    """A periodic call."""

    longest_pause = 3000.0
    most_turns = 300

    async def setup(self) -> None:
        """Start the calls."""
        self.next_beat = self.loop.call_later(1, self.beat)

    def beat(self) -> None:
        """Go on."""
        self.next_beat = self.loop.call_later(1, self.beat)

    async def finish(self) -> None:
        """Stop the calls."""
        self.next_beat.cancel()


class Forgets(Heart):
    """A world that waits endlessly while the periodic calls go on."""

    async def finish(self) -> None:
        """Wait."""
        await _wait_endlessly()


class SpinsInPauses(Heart):
    """A callback that repeats endlessly at one instant."""

    @step
    def spin(self) -> None:
        """Start the callback."""
        self.loop.call_soon(self.spin)


def test_a_periodic_call_may_make_any_number_of_turns() -> None:
    """The clock moves in the pauses between the steps, and the run goes on."""
    run = simulate(Heart, seed=1, steps=20, faults=[])

    assert run.error is None
    assert run.simulated_seconds > 3 * Heart.most_turns  # with a turn or more for each


@pytest.mark.parametrize(
    ("world", "part"), [(Forgets, "finish"), (SpinsInPauses, "an instant before step \\d+")]
)
def test_the_error_names_the_limit_of_turns(world: type[World], part: str) -> None:
    """It has the part of the run, and the attribute of the world; no rule was broken."""
    text = f"^seed 1 of {world.__name__} was stopped: .*: {part} took more than 300 turns .* larger"

    with pytest.raises(SimulationFailedError, match=f"{text} most_turns\n"):
        explore(world, seeds=[1], steps=20)


# --- arguments ------------------------------------------------------------------------------

USUAL: dict[str, Any] = {"world": Accounts, "seed": 1}
NO_SEEDS: dict[str, Any] = {"world": Accounts, "seeds": []}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"world": Accounts()}, TypeError, "world must be a subclass of World, got"),
        ({"world": World}, ValueError, "world must have a method marked with step"),
        ({"seed": 1.0}, TypeError, "seed must be an integer, got 1.0"),
        ({"steps": -1}, ValueError, "steps must be"),
        ({"steps": [2, 1]}, ValueError, "steps must be ascending numbers, got [2, 1]"),
        ({"steps": 2.5}, TypeError, "steps must be an int from 0 to 1000000, got 2.5"),
        ({"faults": "stall"}, TypeError, "faults must be a collection of"),
        ({"faults": 5}, TypeError, "faults must be a collection of"),
        ({"faults": ["step"]}, ValueError, "faults must be of"),
    ],
)
def test_a_wrong_argument(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    """Each call raises one clear error, also before the first seed."""
    with pytest.raises(error) as caught:
        simulate(**(USUAL | arguments))
    assert text in str(caught.value)

    if "seed" not in arguments:
        with pytest.raises(error) as caught:
            explore(**(NO_SEEDS | arguments))
        assert text in str(caught.value)


def test_a_number_of_seeds_is_refused() -> None:
    """The text shows what to write."""
    seeds: Any = 100
    with pytest.raises(TypeError, match=r"seeds must be integers such as range\(100\), got 100"):
        explore(Accounts, seeds=seeds)


@pytest.mark.parametrize("name", ["check", "idle", "strike", "closed", "state"])
def test_a_rule_that_would_not_be_awaited(name: str) -> None:
    """The class is refused, because its rule would never be checked."""

    async def rule(self: World, *_: str) -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=rf"^{name} must be a plain function, got the coroutine"):
        type("Awaits", (Quiet,), {name: rule})


@pytest.mark.parametrize("name", ["setup", "finish"])
def test_a_method_that_could_not_be_awaited(name: str) -> None:
    """The class is refused; the run would fail and not name the method."""

    def plain(_: World) -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=rf"^{name} must be a coroutine function, got <function"):
        type("Plain", (Quiet,), {name: plain})


def test_a_step_that_would_not_run() -> None:
    """A generator function is refused, because the call of a step would run nothing."""

    async def walk(_: World) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"^a step must be a plain or a coroutine function, got"):
        step(walk)


@pytest.mark.parametrize("weight", [0, 1001])
def test_a_wrong_weight(weight: int) -> None:
    """The error has the legal range."""
    with pytest.raises(ValueError, match="weight must be"):
        step(weight=weight)


@pytest.mark.parametrize("steps", [(), (0,), (0, 1, 2, 5), (3, 7, 8)])
def test_steps_as_text(steps: tuple[int, ...]) -> None:
    """Steps converted to text and back are equal."""
    assert steps_from_text(steps_to_text(steps)) == steps


@pytest.mark.parametrize("text", ["x", "1-", "1-x", "1,,2", "4-0"])
def test_wrong_steps_as_text(text: str) -> None:
    """The call raises one clear error."""
    with pytest.raises(BadInputError, match="steps must be"):
        steps_from_text(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--faults", "stal"], "faults must be of"),
        (["--seed", "1", "--faults", "stal"], "faults must be of"),
        (["--seeds", "0"], "seeds must be"),
    ],
)
def test_a_wrong_option(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The program exits with 2 and runs no world."""
    assert main(["--world", "timer", *words]) == 2

    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["--seeds", "5"], ["--first", "9"]])
def test_a_replay_takes_no_range_of_seeds(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The program would ignore the range."""
    with pytest.raises(SystemExit) as ended:
        main(["--world", "timer", "--seed", "3", *words])

    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert "error: --seed must be without --seeds and --first" in printed.err
    assert printed.out == ""


def test_the_program_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is not that of a broken rule."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aiowheel.testing.simulation.__main__.explore", interrupt)

    assert main(["--world", "timer"]) == 130
    assert capsys.readouterr().err == "simulation: interrupted\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--seeds", "1"], ["--seed", "1"]])
def test_the_output_cannot_be_written(words: Sequence[str]) -> None:
    """The status is not that of a broken rule, and the error is one line."""
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "aiowheel.testing.simulation", "--world", "timer", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )

    assert run.returncode == 2
    assert run.stderr.splitlines()[-1] == "simulation: [Errno 28] No space left on device"
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("name", ["nothing", "nothing:World", "tests/none.py:World", "json:loads"])
def test_a_wrong_world(name: str) -> None:
    """The call raises one clear error."""
    with pytest.raises(BadInputError, match="world"):
        world_named(name)


def test_a_world_whose_file_explores_it(tmp_path: Path) -> None:
    """Loading the file for a replay finds the broken rule again; the world is defined before it."""
    file = tmp_path / "explores.py"
    file.write_text(
        "from aiowheel.testing.simulation import World, explore, step\n"
        "class Broken(World):\n"
        "    @step\n"
        "    def fail(self): assert 0\n"
        "explore(Broken, seeds=range(5))\n"
    )

    assert world_named(f"{file}:Broken").__name__ == "Broken"


def test_a_world_whose_file_imports_a_missing_module(tmp_path: Path) -> None:
    """The error says how to find modules on the path of pytest alone."""
    path = tmp_path / "lost.py"
    path.write_text("import no_such_module\n")
    with pytest.raises(BadInputError, match=r"No module named 'no_such_module'; .* PYTHONPATH"):
        world_named(f"{path}:Lost")


def test_a_world_whose_module_raises(tmp_path: Path) -> None:
    """The call raises one clear error, which names the module's own."""
    file = tmp_path / "wrong.py"
    file.write_text("1 / 0")

    with pytest.raises(BadInputError, match=r"wrong\.py:World' cannot be loaded: ZeroDivisionErr"):
        world_named(f"{file}:World")
