"""Several processes that serve on the same sockets, and the one that watches over them. Rank 5.

Source: the pre-fork servers, as gunicorn; the sockets stay open in the parent, so that a connection
that arrives while a worker is replaced waits for the next one.

A worker is a new Python process, so that it has the code that is installed when it starts. A socket
connects it with the parent: the worker reports on it, and ends when it reads something. At the end
of the stream it stops for good: the parent stops, or was killed. A signal for that could arrive
beside the same signal from a supervisor, which sends it to every process, and would then count as
the second one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
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

REPLACED = b"r"  #: what a worker reads that has a successor

_READY, _FAILED = b".", b"!"  # what a worker reports first; a text follows the latter
_MOST_REPORTED = 4_000  # bytes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before a worker is started again
_LONG_LIFE = 10.0  # seconds after which a worker's death is no failure to start
_PATIENCE = 15.0  # seconds until a worker that does not stop is killed
_LONG_PATIENCE = 90.0  # the same for one that is replaced
_VARIABLE = "AIOWHEEL_WORKER"


@dataclass(frozen=True, slots=True)
class Post:
    """What a worker has from its parent.

    Attributes:
        number: Of the worker, from 1; one that replaces another has its number.
        line: File descriptor of the socket that connects it with the parent.
        sockets: File descriptors of the sockets to serve on.
        folder: By which the workers find each other.
    """

    number: int
    line: int
    sockets: list[int]
    folder: str


def post_of_this_process() -> Post | None:
    """Return what this process has from its parent; None: it is no worker."""
    text = os.environ.get(_VARIABLE)
    return None if text is None else Post(**json.loads(text))


def is_worker() -> bool:
    """Return whether this process is one of the workers of `serve`."""
    return _VARIABLE in os.environ


def work_at(post: Post, work: Callable[[list[socket], socket, Callable[[], None]], None]) -> None:
    """Be a worker: call *work* with the sockets, the line and what to call once it serves."""
    del os.environ[_VARIABLE]  # not for a child of ours
    for ignored in (signal.SIGINT, signal.SIGHUP):  # the parent's business
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())
    line = socket(fileno=post.line)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket(fileno=each)) for each in post.sockets]
        try:
            work(sockets, line, lambda: line.sendall(_READY))
        except AiowheelError as error:  # the parent says it
            line.sendall(_FAILED + str(error).encode()[:_MOST_REPORTED])
    line.detach()  # not closed: its end tells the parent that the process has ended


def _signals() -> set[signal.Signals]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass(slots=True, eq=False)
class _Worker:
    """A process.

    Attributes:
        number: From 1; that of the process that it replaces.
        generation: Workers that are started by one SIGHUP have the same.
        process: The process.
        line: Where it reports; at the end of its life there is nothing more to read.
        begun: When it was started.
        pause: Seconds before it was started.
        text: What it has reported.
        last_moment: When it is killed; None: it is to go on.
    """

    number: int
    generation: int
    process: subprocess.Popen[bytes]
    line: socket
    begun: float
    pause: float
    text: bytes = b""
    last_moment: float | None = None


class Workers:
    """Runs a command in several processes until a signal, and replaces those that die.

    SIGHUP replaces all of them: the new ones are started first, and the old ones end when every new
    one serves. If one of the new ones cannot serve, the old ones go on.

    Use it in the main thread.

    Args:
        count: Of processes.
        command: Starts one, which then calls `work_at`.
        sockets: To serve on; closed here when the stop begins.
        folder: By which the workers find each other; of this user alone.
        ready: Called once every process serves.
        reload: Called at SIGHUP; whether the new settings can be used.
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
        self._ready: Callable[[], None] | None = ready  # None: it was called
        self._reload = reload
        self._notice = notice
        self._workers: set[_Worker] = set()
        self._generations = 0  # that were begun
        self._serving = 0  # the generation that serves; 0: none yet
        self._coming: int | None = None  # the generation that is to serve
        self._due: dict[int, tuple[float, float]] = {}  # worker to start: when, after what pause
        self._selector = selectors.DefaultSelector()
        self._stops = False
        self._failure: str | None = None

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second one ends the workers at once.

        Raises:
            AiowheelError: A worker could not start, before all of them had.
        """
        signalled, signalling = os.pipe()
        os.set_blocking(signalling, False)

        def note(number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(BlockingIOError):
                os.write(signalling, bytes([number]))

        try:
            self._selector.register(signalled, selectors.EVENT_READ)
            with handled_by(note, *_signals()):
                self._begin_generation()
                while self._workers or not self._stops:
                    self._turn(signalled)
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
                worker.line.close()
            self._selector.close()
            for each in (signalled, signalling):
                os.close(each)
        if self._failure is not None:
            raise AiowheelError(self._failure)

    def _turn(self, signalled: int) -> None:
        for key, _ in self._selector.select(self._until_next()):
            if key.fd == signalled:
                for number in os.read(signalled, 100):
                    self._take_signal(number)
            elif key.data in self._workers:
                self._take_report(key.data)
        now = time.monotonic()
        self._kill({each for each in self._workers if (each.last_moment or now) < now})
        for number, (when, pause) in list(self._due.items()):
            if when <= now:
                del self._due[number]
                self._start(number, self._serving, pause)

    def _until_next(self) -> float | None:
        """Seconds until something is to be done by itself; None: never."""
        moments = [when for when, _ in self._due.values()]
        moments += [each.last_moment for each in self._workers if each.last_moment is not None]
        return max(0.0, min(moments) - time.monotonic()) + 0.001 if moments else None

    def _take_signal(self, number: int) -> None:
        if self._stops:
            if number != signal.SIGHUP:
                self._kill(self._workers)
        elif number != signal.SIGHUP:
            self._stop()
        elif self._reload():
            self._begin_generation()

    def _stop(self) -> None:
        self._stops = True
        self._due.clear()
        for each in self._sockets:
            each.close()
        for worker in self._workers:
            self._end(worker, b"", _PATIENCE)

    def _end(self, worker: _Worker, word: bytes, patience: float) -> None:
        worker.last_moment = time.monotonic() + patience
        with contextlib.suppress(OSError):  # it has ended
            worker.line.sendall(word)
            worker.line.shutdown(SHUT_WR)

    def _kill(self, workers: set[_Worker]) -> None:
        for worker in workers:
            worker.process.kill()
            worker.last_moment = None

    # --- generations ------------------------------------------------------------------------

    def _of(self, generation: int | None) -> set[_Worker]:
        return {each for each in self._workers if each.generation == generation}

    def _begin_generation(self) -> None:
        """Start as many new workers; those that are not ready yet are superseded."""
        superseded = self._of(self._coming)
        self._generations += 1
        self._coming = self._generations
        self._kill(superseded)
        for number in range(1, self._count + 1):
            self._start(number, self._coming, 0.0)

    def _take_over(self) -> None:
        """Have the new workers serve, and the old ones end."""
        assert self._coming is not None
        for worker in self._of(self._serving):
            self._end(worker, REPLACED, _LONG_PATIENCE)
        self._due.clear()
        self._serving, self._coming = self._coming, None
        if self._ready is None:
            self._notice("reloaded")
        else:
            ready, self._ready = self._ready, None
            ready()

    def _give_up(self, reason: str) -> None:
        """Leave the old workers as they are, because a new one cannot serve."""
        failed, self._coming = self._of(self._coming), None
        if self._ready is None:
            self._kill(failed)
            self._notice(f"not reloaded: {reason}")
        else:
            self._failure = reason
            self._stop()

    # --- one worker -------------------------------------------------------------------------

    def _start(self, number: int, generation: int, pause: float) -> None:
        line, theirs = socketpair()
        sockets = [each.fileno() for each in self._sockets]
        post = Post(number, theirs.fileno(), sockets, str(self._folder))
        # A signal must not find a worker that does not handle it yet.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                env={**os.environ, _VARIABLE: json.dumps(asdict(post))},
                pass_fds=(theirs.fileno(), *sockets),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        worker = _Worker(number, generation, process, line, time.monotonic(), pause)
        self._workers.add(worker)
        self._selector.register(line, selectors.EVENT_READ, worker)

    def _take_report(self, worker: _Worker) -> None:
        text = b""
        with contextlib.suppress(ConnectionError):
            text = worker.line.recv(_MOST_REPORTED)
        worker.text += text
        if not text:
            self._bury(worker)
        elif worker.generation == self._coming:
            serving = [each for each in self._of(self._coming) if each.text.startswith(_READY)]
            if len(serving) == self._count:
                self._take_over()

    def _bury(self, worker: _Worker) -> None:
        """Take note that a process has ended, and have it replaced."""
        self._selector.unregister(worker.line)
        worker.line.close()
        self._workers.remove(worker)
        code = worker.process.wait()
        mark, reason = worker.text[:1], worker.text[1:].decode(errors="replace")
        if mark != _FAILED:
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            reason = f"worker {worker.number} ended {how}"
        if self._stops:
            return
        if worker.generation == self._coming:
            self._give_up(reason)
        elif worker.generation == self._serving:
            lived = time.monotonic() - worker.begun
            pause = 0.0 if lived > _LONG_LIFE else min(_LONGEST_PAUSE, 2 * worker.pause)
            pause = max(_FIRST_PAUSE, pause)
            self._notice(f"{reason}; it is started again" if mark != _FAILED else reason)
            self._due[worker.number] = (time.monotonic() + pause, pause)
