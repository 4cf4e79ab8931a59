"""Several processes that serve on the same sockets, and the one that watches over them. Rank 5.

Source: the pre-fork servers, as gunicorn; the sockets stay open in the parent, so that a connection
that arrives while a worker is replaced waits for the next one.

A worker ends when the parent's end of a pipe is closed, on purpose or because the parent was
killed. A signal for that could arrive beside the same signal from a supervisor, which sends it to
every process, and would then count as the second one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from socket import socket
from types import FrameType
from typing import NoReturn

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError

Work = Callable[[Callable[[], None], int, int], None]

_READY, _FAILED = b".", b"!"  # what a worker reports first; a text follows the latter
_MOST_REPORTED = 4_000  # bytes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before a worker is started again
_LONG_LIFE = 10.0  # seconds after which a worker's death is no failure to start
_PATIENCE = 15.0  # seconds until a worker that does not stop is killed


@dataclass(slots=True)
class _Worker:
    """A process.

    Attributes:
        number: From 1; that of the process that it replaces.
        process: Its id.
        report: Where it reports; at the end of its life there is nothing more to read.
        begun: When it was started.
        pause: Seconds before it was started.
        text: What it has reported.
    """

    number: int
    process: int
    report: int
    begun: float
    pause: float
    text: bytes = b""


class Workers:
    """Runs the same work in several processes until a signal, and replaces those that die.

    Use it in the main thread of a process without other threads.

    Args:
        count: Of processes.
        work: Called in each, with a function to call once it serves, a file descriptor that has
            something to read, namely its end, when the process is to stop, and the worker's number,
            from 1; a worker that replaces a dead one has the same number.
        sockets: Closed here when the stop begins.
        ready: Called once every process serves.
        reload: Called at SIGHUP; whether it succeeded, and the workers are to reload as well.
        notice: Called with a line for the operator.
    """

    def __init__(
        self,
        count: int,
        work: Work,
        sockets: Sequence[socket],
        ready: Callable[[], None],
        reload: Callable[[], bool],
        notice: Callable[[str], None],
    ) -> None:
        self._count = count
        self._work = work
        self._sockets = sockets
        self._ready: Callable[[], None] | None = ready  # None: it was called
        self._reload = reload
        self._notice = notice
        self._workers: dict[int, _Worker] = {}  # by the descriptor of the report
        self._due: dict[int, tuple[float, float]] = {}  # worker to start: when, after what pause
        self._selector = selectors.DefaultSelector()
        self._stop_begun: float | None = None
        self._failure: str | None = None

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second one ends the workers at once.

        Raises:
            AiowheelError: A worker could not start, before all of them had.
        """
        signalled, signalling = os.pipe()
        os.set_blocking(signalling, False)
        self._lifeline, self._life = os.pipe()

        def note(number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(BlockingIOError):
                os.write(signalling, bytes([number]))

        try:
            self._selector.register(signalled, selectors.EVENT_READ)
            with handled_by(note, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                for number in range(1, self._count + 1):
                    self._start(number, 0.0)
                while self._workers or (self._due and self._stop_begun is None):
                    self._turn(signalled)
        finally:
            self._kill()
            self._selector.close()
            for each in (signalled, signalling, self._lifeline):
                os.close(each)
            if self._stop_begun is None:
                os.close(self._life)
        if self._failure is not None:
            raise AiowheelError(self._failure)

    def _turn(self, signalled: int) -> None:
        for key, _ in self._selector.select(self._until_next()):
            if key.fd == signalled:
                for number in os.read(signalled, 100):
                    self._take_signal(number)
            else:
                self._take_report(self._workers[key.fd])
        now = time.monotonic()
        if self._stop_begun is not None:
            if now - self._stop_begun > _PATIENCE:
                self._kill()
            return
        for number, (when, pause) in list(self._due.items()):
            if when <= now:
                del self._due[number]
                self._start(number, pause)

    def _until_next(self) -> float | None:
        """Seconds until something is to be done by itself; None: never."""
        now = time.monotonic()
        if self._stop_begun is not None:
            return max(0.0, self._stop_begun + _PATIENCE - now) + 0.01
        return max(0.0, min(when for when, _ in self._due.values()) - now) if self._due else None

    def _take_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            if self._reload():
                for worker in self._workers.values():
                    os.kill(worker.process, signal.SIGHUP)
        elif self._stop_begun is None:
            self._stop()
        else:
            self._kill()

    def _stop(self) -> None:
        self._stop_begun = time.monotonic()
        for each in self._sockets:
            each.close()
        os.close(self._life)

    def _kill(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.process, signal.SIGKILL)

    # --- one worker -------------------------------------------------------------------------

    def _start(self, number: int, pause: float) -> None:
        report, reporting = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal must not find a worker that still has the handlers of its parent.
        ours = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
        process = os.fork()
        if process == 0:
            self._be_a_worker(number, reporting, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reporting)
        self._workers[report] = _Worker(number, process, report, time.monotonic(), pause)
        self._selector.register(report, selectors.EVENT_READ)

    def _be_a_worker(
        self, number: int, reporting: int, mask: set[int | signal.Signals]
    ) -> NoReturn:
        code = 1
        try:
            os.close(self._life)  # else it would not end with the parent
            for ignored in (signal.SIGINT, signal.SIGHUP):  # the parent's business
                signal.signal(ignored, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._work(partial(_report, reporting, _READY), self._lifeline, number)
            code = 0
        except AiowheelError as error:
            _report(reporting, _FAILED + str(error).encode()[:_MOST_REPORTED])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # the rest of the stack is the parent's

    def _take_report(self, worker: _Worker) -> None:
        text = os.read(worker.report, _MOST_REPORTED)
        worker.text += text
        if not text:
            self._bury(worker)
        elif self._ready is not None and self._all_serve():
            ready, self._ready = self._ready, None
            ready()

    def _all_serve(self) -> bool:
        serving = [each for each in self._workers.values() if each.text.startswith(_READY)]
        return len(serving) == self._count

    def _bury(self, worker: _Worker) -> None:
        """Take note that a process has ended, and have it replaced."""
        self._selector.unregister(worker.report)
        os.close(worker.report)
        del self._workers[worker.report]
        _, status = os.waitpid(worker.process, 0)
        if self._stop_begun is not None:
            return
        mark, reason = worker.text[:1], worker.text[1:].decode(errors="replace")
        if mark != _FAILED:
            code = os.waitstatus_to_exitcode(status)
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            reason = f"worker {worker.number} ended {how}"
        if self._ready is not None:
            self._failure = reason
            self._stop()
            return
        lived = time.monotonic() - worker.begun
        pause = 0.0 if lived > _LONG_LIFE else min(_LONGEST_PAUSE, 2 * worker.pause)
        pause = max(_FIRST_PAUSE, pause)
        self._notice(f"{reason}; it is started again" if mark != _FAILED else reason)
        self._due[worker.number] = (time.monotonic() + pause, pause)


def _report(reporting: int, text: bytes) -> None:
    os.write(reporting, text)
