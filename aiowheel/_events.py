"""Log events: an event name and its fields. Rank 1: it logs.

Silent by default. An application that configured structlog gets the events from the structlog
logger "aiowheel"; any other finds them on the standard library's logger of that name, which has a
NullHandler. structlog itself is never configured here.
"""

from __future__ import annotations

import logging
import sys
import traceback

logging.getLogger("aiowheel").addHandler(logging.NullHandler())


def emit(event: str, **fields: object) -> None:
    """Log *event* as a warning, with its fields by name; never raises an Exception.

    The logger is chosen at each call, so that configuring structlog after this library was imported
    has an effect. A logger that fails, a structlog processor that raises for example, is reported
    as the standard library reports a failing handler: by a traceback on stderr, unless
    `logging.raiseExceptions` is false.
    """
    _log(logging.WARNING, event, fields)


def emit_info(event: str, **fields: object) -> None:
    """Log *event* as information, with its fields by name; otherwise as `emit`."""
    _log(logging.INFO, event, fields)


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    try:
        import structlog  # 20 ms that a process without events need not pay

        if structlog.is_configured():
            log = structlog.get_logger("aiowheel")
            (log.warning if level == logging.WARNING else log.info)(event, **fields)
            return
        logger = logging.getLogger("aiowheel")
        if logger.isEnabledFor(level):
            text = " ".join(f"{name}={value!r}" for name, value in fields.items())
            logger.log(level, "%s %s", event, text)
    except Exception:
        _report_failure(event)


def _report_failure(event: str) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    try:
        sys.stderr.write(f"--- aiowheel: the logger raised for the event {event} ---\n")
        traceback.print_exc(file=sys.stderr)
    except Exception:  # stderr is closed: nothing is left to write to
        return
