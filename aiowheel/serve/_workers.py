"""Worker processes that serve on the same sockets, and the parent that supervises them. Rank 5.

Source: pre-fork servers such as gunicorn. The sockets stay open in the parent: a connection that
arrives while a worker is being replaced waits in the backlog for the next worker.

A worker is a new Python process, so that it runs the code that is installed when it starts. A
socket, the channel, connects it with the parent. The worker reports on it, and stops when it reads
from it: `REPLACED` if a new worker takes its place, or the end of the stream if the parent stops or
was killed. The parent does not stop a worker by a signal: a supervisor may send the same signal to
every process, and a worker would take the second signal as the order to stop at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import SHUT_WR, socket, socketpair
from types import FrameType

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError
from aiowheel.serve._setting_files import (
    forget_settings,
    given_settings,
    given_to_worker,
    settings_read,
)

REPLACED = b"r"  #: sent to a worker that a new worker replaces

_READY, _FAILED = b".", b"!"  # first byte of a worker's report; the error follows `_FAILED`
_MOST_REPORTED = 4_000  # bytes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before a worker is started again
_LONG_LIFE = 10.0  # a worker that lived longer is started again without a growing pause, in seconds
_PATIENCE = 15.0  # seconds after which a worker that does not stop is killed
_LONG_PATIENCE = 90.0  # the same for a replaced worker
_VARIABLE = "AIOWHEEL_WORKER"


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The values that a worker gets from its parent, as JSON in an environment variable.

    The field names must not change: after an upgrade, a worker runs newer code than its parent.

    Attributes:
        number: Number of the worker, from 1; a replacement has the number of the worker before.
        line: File descriptor of the channel to the parent.
        sockets: File descriptors of the sockets to serve on.
        folder: Folder of the sockets that connect the workers.
    """

    number: int
    line: int
    sockets: list[int]
    folder: str


def worker_setup() -> WorkerSetup | None:
    """Return the setup from the parent; None if this process is not a worker."""
    text = os.environ.get(_VARIABLE)
    return None if text is None else WorkerSetup(**json.loads(text))


def is_worker() -> bool:
    """Return whether this process is one of the workers of `serve`."""
    return _VARIABLE in os.environ


def run_worker(
    setup: WorkerSetup, work: Callable[[list[socket], socket, Callable[[], None]], None]
) -> None:
    """Run *work* as a worker.

    Args:
        setup: The setup from the parent.
        work: Called with the sockets, the channel and a function to call once the worker serves.
    """
    del os.environ[_VARIABLE]  # child processes of the worker are not workers
    given_settings()
    for ignored in (signal.SIGINT, signal.SIGHUP):  # the parent handles them
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())
    channel = socket(fileno=setup.line)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_orphan, channel, setup.folder)
        sockets = [stack.enter_context(socket(fileno=each)) for each in setup.sockets]
        try:
            work(sockets, channel, lambda: _report(channel, _READY))
        except AiowheelError as error:  # the parent reports it
            _report(channel, _FAILED + str(error).encode()[:_MOST_REPORTED])
    channel.detach()  # stays open: the end of the stream shows the parent the end of the process


def _remove_if_orphan(channel: socket, folder: str) -> None:
    """Remove *folder* if the parent, which removes it otherwise, was killed."""
    try:
        channel.send(b"")  # fails if the other end is closed, but not if it is only shut down
    except ConnectionError:
        shutil.rmtree(folder, ignore_errors=True)


def _report(channel: socket, text: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the parent was killed: the worker stops
        channel.sendall(text)


def _signals() -> set[signal.Signals]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal whose number the parent reads from a pipe."""


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process, as the parent sees it.

    Attributes:
        number: Number of the worker, from 1; a replacement has the number of the worker before.
        generation: Number of the generation; all workers that one SIGHUP starts share it.
        process: The process.
        channel: Socket of its reports; the stream ends with the process.
        started: Time of the start, on the monotonic clock.
        pause: Seconds that passed before the start, after the worker before had died.
        text: Bytes of its reports so far.
        kill_at: Time at which the process is killed; None: it is not stopping.
    """

    number: int
    generation: int
    process: subprocess.Popen[bytes]
    channel: socket
    started: float
    pause: float
    text: bytes = b""
    kill_at: float | None = None


class Workers:
    """The parent: runs worker processes until a signal, and starts dead workers again.

    On SIGHUP it starts a new generation of workers. When all of them serve, it stops the old
    generation. If one of them fails, it kills the new generation, and the old one continues. All
    workers of a generation get the contents of the files of settings that the parent has read.

    The object must be used in the main thread.

    Args:
        count: Number of workers.
        command: Command of a worker process, which must call `run_worker`.
        sockets: The sockets to serve on; closed when the stop begins.
        folder: Folder of the sockets that connect the workers; only this user may have access.
        ready: Called once all workers serve.
        reload: Called on SIGHUP; returns whether the new settings can be used.
        notice: Called with a line for the operator.
    """

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        sockets: Sequence[socket],
        folder: Path,
        ready: Callable[[], None],
        reload: Callable[[], bool],
        notice: Callable[[str], None],
    ) -> None:
        self._count = count
        self._command = command
        self._sockets = sockets
        self._folder = folder
        self._ready: Callable[[], None] | None = ready  # None after its call
        self._reload = reload
        self._notice = notice
        self._workers: set[_Worker] = set()
        self._generations = 0  # number of generations that were started
        self._serving = 0  # the generation that serves; 0: none yet
        self._starting: int | None = None  # the generation that does not serve yet
        self._settings: dict[int, bytes] = {}  # contents of the files of settings, by generation
        # Dead workers to start again, by number: time of the start and the pause before it.
        self._due: dict[int, tuple[float, float]] = {}
        self._selector = selectors.DefaultSelector()
        self._stops = False
        self._failure: str | None = None

    def run(self) -> None:
        """Run the workers until SIGTERM or SIGINT; a second signal kills them at once.

        Raises:
            AiowheelError: A worker failed before all workers of the first generation served.
        """
        signalled, signalling = os.pipe()
        os.set_blocking(signalling, False)
        # Python writes the numbers of signals to the pipe at once. A handler runs only between two
        # instructions of Python, which may be after the end of a `select` that has just begun.
        earlier = signal.set_wakeup_fd(signalling, warn_on_full_buffer=False)
        try:
            self._selector.register(signalled, selectors.EVENT_READ)
            with handled_by(_do_nothing, *_signals()):
                self._begin_generation()
                while self._workers or not self._stops:
                    self._run_once(signalled)
        finally:
            signal.set_wakeup_fd(earlier)
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
                worker.channel.close()
            self._selector.close()
            for each in (signalled, signalling):
                os.close(each)
        if self._failure is not None:
            raise AiowheelError(self._failure)

    def _run_once(self, signalled: int) -> None:
        for key, _ in self._selector.select(self._seconds_to_next()):
            if key.fd == signalled:
                for number in os.read(signalled, 100):
                    if number in _signals():
                        self._handle_signal(number)
            elif key.data in self._workers:
                self._read_report(key.data)
        now = time.monotonic()
        self._kill({each for each in self._workers if (each.kill_at or now) < now})
        for number, (when, pause) in list(self._due.items()):
            if when <= now:
                del self._due[number]
                self._start(number, self._serving, pause)

    def _seconds_to_next(self) -> float | None:
        """Return the seconds to the next start or kill of a worker; None if there is none."""
        moments = [when for when, _ in self._due.values()]
        moments += [each.kill_at for each in self._workers if each.kill_at is not None]
        return max(0.0, min(moments) - time.monotonic()) + 0.001 if moments else None

    def _handle_signal(self, number: int) -> None:
        if self._stops:
            if number != signal.SIGHUP:
                self._kill(self._workers)
        elif number != signal.SIGHUP:
            self._stop()
        else:
            forget_settings()  # new workers read the files that `reload` does not read
            if self._reload():
                self._begin_generation()

    def _stop(self) -> None:
        self._stops = True
        self._starting = None  # a report of readiness comes too late now
        self._due.clear()
        for each in self._sockets:
            each.close()
        for worker in self._workers:
            self._stop_worker(worker, b"", _PATIENCE)

    def _stop_worker(self, worker: _Worker, word: bytes, patience: float) -> None:
        worker.kill_at = time.monotonic() + patience
        with contextlib.suppress(OSError):  # the process has ended
            worker.channel.sendall(word)
            worker.channel.shutdown(SHUT_WR)

    def _kill(self, workers: set[_Worker]) -> None:
        for worker in workers:
            worker.process.kill()
            worker.kill_at = None

    # --- generations ------------------------------------------------------------------------

    def _workers_of(self, generation: int | None) -> set[_Worker]:
        return {each for each in self._workers if each.generation == generation}

    def _begin_generation(self) -> None:
        """Start a new generation; kill an earlier one that does not serve yet."""
        superseded = self._workers_of(self._starting)
        self._generations += 1
        generation = self._starting = self._generations
        kept = {each: old for each, old in self._settings.items() if each == self._serving}
        self._settings = {**kept, generation: settings_read()}
        self._kill(superseded)
        for number in range(1, self._count + 1):
            if self._starting == generation:  # every worker so far could be started
                self._start(number, generation, 0.0)

    def _take_over(self) -> None:
        """Make the new generation the serving one, and stop the old one."""
        assert self._starting is not None
        for worker in self._workers_of(self._serving):
            self._stop_worker(worker, REPLACED, _LONG_PATIENCE)
        self._due.clear()
        self._serving, self._starting = self._starting, None
        if self._ready is None:
            self._notice("reloaded")
        else:
            ready, self._ready = self._ready, None
            ready()

    def _fail_generation(self, reason: str) -> None:
        """End the starting generation, because one of its workers failed.

        The old generation continues; without one, the parent stops.
        """
        failed, self._starting = self._workers_of(self._starting), None
        if self._ready is None:
            self._kill(failed)
            self._notice(f"not reloaded: {reason}")
        else:
            self._failure = reason
            self._stop()

    # --- one worker -------------------------------------------------------------------------

    def _start(self, number: int, generation: int, pause: float) -> None:
        try:
            process, channel = self._spawn(number, self._settings[generation])
        except OSError as error:  # the machine has no process, memory or descriptor left
            reason = f"worker {number} cannot be started: {error.strerror}"
            self._start_again(number, generation, reason, 2 * pause)
            return
        worker = _Worker(number, generation, process, channel, time.monotonic(), pause)
        self._workers.add(worker)
        self._selector.register(channel, selectors.EVENT_READ, worker)

    def _spawn(self, number: int, settings: bytes) -> tuple[subprocess.Popen[bytes], socket]:
        """Start the process of a worker; return it with the parent's end of the channel."""
        channel, theirs = socketpair()
        sockets = [each.fileno() for each in self._sockets]
        setup = WorkerSetup(number, theirs.fileno(), sockets, str(self._folder))
        # Blocked until the worker has set its signal handlers: the mask is inherited.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
        try:
            with given_to_worker(settings) as (file, variable):
                process = subprocess.Popen(  # noqa: S603 - our own command
                    self._command,
                    env={**os.environ, **variable, _VARIABLE: json.dumps(asdict(setup))},
                    pass_fds=(theirs.fileno(), file, *sockets),
                )
        except BaseException:
            channel.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        return process, channel

    def _read_report(self, worker: _Worker) -> None:
        text = b""
        with contextlib.suppress(ConnectionError):
            text = worker.channel.recv(_MOST_REPORTED)
        worker.text += text
        if not text:
            self._handle_exit(worker)
        elif worker.generation == self._starting:
            workers = self._workers_of(self._starting)
            if sum(each.text.startswith(_READY) for each in workers) == self._count:
                self._take_over()

    def _handle_exit(self, worker: _Worker) -> None:
        """Remove a worker whose process has ended, and schedule its replacement."""
        self._selector.unregister(worker.channel)
        worker.channel.close()
        self._workers.remove(worker)
        code = worker.process.wait()
        mark, reason = worker.text[:1], worker.text[1:].decode(errors="replace")
        if mark != _FAILED:
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            reason = f"worker {worker.number} ended {how}"
        lived = time.monotonic() - worker.started
        pause = 0.0 if lived > _LONG_LIFE else 2 * worker.pause
        self._start_again(worker.number, worker.generation, reason, pause, is_named=mark != _FAILED)

    def _start_again(
        self, number: int, generation: int, reason: str, pause: float, *, is_named: bool = True
    ) -> None:
        """Start a worker again, later, that has ended or could not be started.

        Args:
            number: Number of the worker.
            generation: Its generation. The starting one fails as a whole, and earlier ones have
                been replaced already.
            reason: The reason, for the operator.
            pause: Seconds to wait, within the bounds of the pauses.
            is_named: Whether *reason* names the worker.
        """
        if self._stops:
            return
        if generation == self._starting:
            self._fail_generation(reason)
        elif generation == self._serving:
            pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, pause))
            self._notice(f"{reason}; it is started again" if is_named else reason)
            self._due[number] = (time.monotonic() + pause, pause)
