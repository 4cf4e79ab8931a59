"""The effect of the mark `virtual_time` on a test. Rank 4.

The plugin (`_aiowheel_pytestplugin`) imports this module at the first marked test. From then on,
pytest-asyncio calls the hook below, which returns virtual loops for marked tests only and does not
change the loops of unmarked tests. This module never imports pytest-asyncio, anyio or aiohttp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, wraps
from inspect import iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from aiowheel._arguments import safe_repr
from aiowheel.errors import VirtualDeadlockError
from aiowheel.testing._idle_selector import Events
from aiowheel.testing._loop import VirtualClockEventLoop

if TYPE_CHECKING:
    from pluggy import Result

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

MARK = "virtual_time"
_CHOOSER = "aiowheel-loop-chooser"
_AIOHTTP = "aiohttp.pytest_plugin"
#: The deadlocks after which a task that catches each cancellation is given up.
_MOST_CANCELLATIONS = 100
#: The number of marks that `choose_loops` knew, by test without parameters.
_CHOSEN = pytest.StashKey[dict[str, int]]()
#: Why the mark of a test was refused while tests were collected, by test without parameters.
_REFUSED = pytest.StashKey[dict[str, str]]()


class _TestLoop(VirtualClockEventLoop):
    """A virtual loop that ends a test or a fixture before it raises its deadlock, and goes on.

    pytest-asyncio runs each test and each fixture in a task, which would outlive an error that left
    the loop, and run on in the next test. anyio's plugin runs all tests and fixtures of a loop in
    one task, which such an error would leave in the test.
    """

    _task: asyncio.Task[Any] | None = None  # that of the test or the fixture
    _deadlock: VirtualDeadlockError | None = None  # the first one of `_task`
    _cancellations = 0  # of `_task`, because of deadlocks

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until *future* is done; if it is a task, a deadlock cancels it.

        Raises:
            VirtualDeadlockError: The loop could only wait endlessly.
        """
        # anyio's plugin passes a coroutine, and the test runs in another task: see `run_test`.
        if not isinstance(future, asyncio.Task):
            return super().run_until_complete(future)
        with self._ended_by_a_deadlock(future):
            result: T = super().run_until_complete(future)
        return result

    async def run_test(self, test: Awaitable[object]) -> None:
        """Await *test*; a deadlock cancels it and is raised after its end.

        Raises:
            VirtualDeadlockError: The test could only wait endlessly.
        """
        with self._ended_by_a_deadlock(asyncio.current_task(self)):
            await test

    @contextmanager
    def _ended_by_a_deadlock(self, task: asyncio.Task[Any] | None) -> Generator[None]:
        outer, self._task = self._task, task
        is_exit = False
        try:
            yield
        except (KeyboardInterrupt, SystemExit):  # during the cleanup, for example Ctrl-C
            is_exit = True
            raise
        finally:
            self._task = outer
            error, self._deadlock = self._deadlock, None
            times, self._cancellations = self._cancellations, 0
            if task is not None and error is not None:
                for _ in range(times):
                    task.uncancel()
                if not is_exit:
                    raise error

    def _on_standstill(self) -> Events:
        try:
            return super()._on_standstill()
        except VirtualDeadlockError as error:
            # The cleanup of a cancelled task may wait endlessly as well, at several places.
            if self._task is None or self._cancellations == _MOST_CANCELLATIONS:
                raise
            self._deadlock = self._deadlock or error
            self._cancellations += 1
            self._task.cancel()
            return []


def choose_loops(metafunc: pytest.Metafunc, mark: pytest.Mark) -> None:
    """Run a marked test on virtual loops, under anyio's plugin or pytest-asyncio."""
    with _refused_later(metafunc.definition):
        _choose_loops(metafunc, mark)


@contextmanager
def _refused_later(definition: pytest.Item) -> Generator[None]:
    """Keep a refusal until the test runs: pytest runs no test at all after a failed collection."""
    try:
        yield
    except pytest.fail.Exception as refusal:
        refused = definition.config.stash.setdefault(_REFUSED, {})
        refused.setdefault(definition.nodeid, str(refusal))


def _choose_loops(metafunc: pytest.Metafunc, mark: pytest.Mark) -> None:
    marks = len(list(metafunc.definition.iter_markers(MARK)))
    metafunc.config.stash.setdefault(_CHOSEN, {})[metafunc.definition.nodeid] = marks
    if "anyio_backend" in metafunc.fixturenames:
        if pytest.version_tuple < (8,):  # before, a plugin cannot parametrize the fixture again
            _refuse(metafunc.definition, "needs pytest 8.0 or later under anyio's plugin")
        if any(_names_a_backend(each) for each in metafunc.definition.iter_markers("parametrize")):
            _refuse(
                metafunc.definition,
                'chooses the backend, so drop parametrize("anyio_backend", ...) of the test, its '
                "class or its module",
            )
        loops = _virtual_loops(metafunc.definition, mark)
        backends = [("asyncio", {"loop_factory": factory}) for factory in loops.values()]
        # The scope is that of anyio's own fixture, because module fixtures may use it.
        metafunc.parametrize("anyio_backend", backends, ids=list(loops), scope="module")
    plugins = metafunc.config.pluginmanager
    if plugins.has_plugin(_AIOHTTP) and "loop_factory" in metafunc.fixturenames:
        _refuse(
            metafunc.definition,
            f"cannot change the loop of {_AIOHTTP}'s fixtures; use pytest-aiohttp 1.1 or later "
            "with pytest-asyncio 1.4 or later",
        )
    if not plugins.has_plugin("asyncio"):
        return
    if not plugins.has_plugin(_CHOOSER):
        plugins.register(_LoopChooser(), _CHOOSER)
    if (
        not metafunc.config.hook.pytest_asyncio_loop_factories.has_spec()
        and iscoroutinefunction(metafunc.function)
        and "anyio_backend" not in metafunc.fixturenames
    ):
        _refuse(metafunc.definition, "needs pytest-asyncio 1.4 or later")


def _names_a_backend(parametrize: pytest.Mark) -> bool:
    names = parametrize.args[0] if parametrize.args else parametrize.kwargs.get("argnames", ())
    listed = names.replace(",", " ").split() if isinstance(names, str) else names
    return "anyio_backend" in listed


def refuse_test_case(item: pytest.Item) -> None:
    """Fail a marked test of unittest's `IsolatedAsyncioTestCase`, which creates its own loop."""
    from unittest import IsolatedAsyncioTestCase

    cls: object = getattr(item, "cls", None)
    if isinstance(cls, type) and issubclass(cls, IsolatedAsyncioTestCase):
        _refuse(
            item,
            "cannot change the loop of unittest's IsolatedAsyncioTestCase; write the test as a "
            "function, or drop the mark and set loop_factory = VirtualClockEventLoop in the class "
            "(Python 3.13 or later)",
        )


def refuse_refused_mark(item: pytest.Item) -> None:
    """Fail a test whose mark was refused while tests were collected."""
    reason = item.config.stash.setdefault(_REFUSED, {}).get(_without_parameters(item))
    if reason is not None:
        pytest.fail(reason, pytrace=False)


def _without_parameters(item: pytest.Item) -> str:
    """Return the node id that the test of *item* had when its parameters were chosen."""
    name = getattr(item, "originalname", None) or item.name
    return f"{item.parent.nodeid}::{name}" if item.parent else item.nodeid


def refuse_late_mark(item: pytest.Item) -> None:
    """Fail an async test whose mark was added after its loop was chosen."""
    if not isinstance(item, pytest.Function) or not iscoroutinefunction(unwrap(item.obj)):
        return
    known = item.config.stash.setdefault(_CHOSEN, {}).get(_without_parameters(item), 0)
    if len(list(item.iter_markers(MARK))) > known:
        _refuse(
            item,
            "has no effect in pytest.param or by add_marker, because the loop is chosen before; "
            "put the mark on the test, its class or its module",
        )


def require_virtual_loop(item: pytest.Function) -> None:
    """Wrap the coroutine function of *item*, so that it runs on a virtual loop or fails.

    pytest-asyncio has turned its tests into plain functions before this call; other plugins call
    the coroutine function on a loop of their choice.
    """
    function: Callable[..., Awaitable[object]] = item.obj
    if not iscoroutinefunction(function):
        return

    @wraps(function)
    async def run(*args: object, **kwargs: object) -> None:
        try:
            loop: object = asyncio.get_running_loop()
        except RuntimeError:
            loop = "no asyncio loop"
        if not isinstance(loop, VirtualClockEventLoop):
            _refuse(
                item,
                f"has no effect here: the test runs on {loop!r}; use pytest-asyncio 1.4 or later, "
                "or anyio's plugin",
            )
        test = function(*args, **kwargs)
        await (loop.run_test(test) if isinstance(loop, _TestLoop) else test)

    item.obj = run


def _refuse(item: pytest.Item, reason: str) -> NoReturn:
    pytest.fail(f"{item.nodeid}: mark {MARK} {reason}", pytrace=False)


class _LoopChooser:
    """An implementation of pytest-asyncio's hook that overrides the project's own for marked tests.

    It is a `hookwrapper`, because pluggy before 1.2 does not have `wrapper=True`.
    """

    @pytest.hookimpl(hookwrapper=True, optionalhook=True)
    def pytest_asyncio_loop_factories(
        self, item: pytest.Item
    ) -> Generator[None, Result[Mapping[str, LoopFactory] | None]]:
        """Set the loops on which *item* runs, by the names in the test ids."""
        mark = item.get_closest_marker(MARK)
        own: Mapping[str, LoopFactory] | None = None
        if mark is not None:
            with _refused_later(item):
                _refuse_other_loops(item)
                own = _virtual_loops(item, mark)
        outcome = yield
        if own is not None:
            outcome.force_result(own)
        elif outcome.excinfo is None and outcome.get_result() is None:
            # Without another implementation, return the default of pytest-asyncio.
            outcome.force_result({"asyncio": asyncio.new_event_loop})


def _refuse_other_loops(item: pytest.Item) -> None:
    mark = item.get_closest_marker("asyncio")
    if mark is not None and mark.kwargs.get("loop_factories"):
        _refuse(
            item,
            f"chooses the loop, so drop loop_factories={mark.kwargs['loop_factories']!r}; other "
            "loops, uvloop above all, cannot be virtual",
        )


def _virtual_loops(item: pytest.Item, mark: pytest.Mark) -> dict[str, LoopFactory]:
    try:
        return virtual_time(*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        pytest.fail(f"{item.nodeid}: mark {MARK}: {error}", pytrace=False)


def virtual_time(
    autojump: bool = True,  # noqa: FBT001, FBT002 - the mark's arguments, which may go by position
    patience: float = 0.1,
    seed: int | Iterable[int] | None = None,
    start: float = 0.0,
) -> dict[str, LoopFactory]:
    """Return the loops that the mark's arguments describe, by the names in the test ids."""
    if not isinstance(seed, Iterable):
        return {"virtual": _factory(autojump, patience, seed, start)}
    if isinstance(seed, Iterator):  # a second test of the mark's class would find no seed left
        raise TypeError(f"seed must be a list or a range of seeds, got {safe_repr(seed)}")
    loops = {f"seed={each}": _factory(autojump, patience, each, start) for each in seed}
    if not loops:
        raise ValueError(
            f"seed must be an integer, None or at least one of these, got {safe_repr(seed)}"
        )
    return loops


@cache
def _factory(
    autojump: bool,  # noqa: FBT001 - as above
    patience: float,
    seed: int | None,
    start: float,
) -> LoopFactory:
    """Return the same factory for equal options: pytest compares factories to share loops."""
    make = partial(_TestLoop, autojump=autojump, patience=patience, seed=seed, start=start)
    make().close()  # raises for bad options here, where the error can have the test's name
    return make
