"""Log events: an event name and its fields. Rank 1: it logs.

Silent by default. If the application has configured structlog, events go to the structlog logger
"aiowheel", otherwise to the standard library's logger of that name, which has a NullHandler. This
package never configures structlog.
"""

from __future__ import annotations

import logging
import sys
import traceback

logging.getLogger("aiowheel").addHandler(logging.NullHandler())


def emit(event: str, raised: BaseException | None = None, /, **fields: object) -> None:
    """Log *event* as a warning, with its fields by name; never raises an Exception.

    With *raised*, an error of the application's code, the log has its traceback as well.

    The logger is chosen at each call, so that structlog may be configured after the import of this
    library. If the logger raises, for example in a structlog processor, a traceback goes to stderr
    unless `logging.raiseExceptions` is false, as for a failing handler of the standard library.
    """
    _log(logging.WARNING, event, fields, raised)


def emit_info(event: str, **fields: object) -> None:
    """Log *event* at the level INFO, with its fields by name; otherwise as `emit`."""
    _log(logging.INFO, event, fields)


def _log(
    level: int, event: str, fields: dict[str, object], raised: BaseException | None = None
) -> None:
    try:
        import structlog  # imported here: it takes 20 ms, and most processes log no event

        if structlog.is_configured():
            log = structlog.get_logger("aiowheel")
            if raised is not None:  # structlog's processors format this field
                fields["exc_info"] = raised
            (log.warning if level == logging.WARNING else log.info)(event, **fields)
            return
        logger = logging.getLogger("aiowheel")
        if logger.isEnabledFor(level):
            text = " ".join(f"{name}={value!r}" for name, value in fields.items())
            template = event + " %s"  # tools such as Sentry group records by it
            logger.log(level, template, text, exc_info=raised)
    except Exception:
        _report_failure(event)


def _report_failure(event: str) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    try:
        sys.stderr.write(f"--- aiowheel: the logger raised for the event {event} ---\n")
        traceback.print_exc(file=sys.stderr)
    except Exception:  # stderr is closed
        return
