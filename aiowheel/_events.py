"""Log events: an event name and its fields. Rank 1: it logs.

Silent by default. An application that configured structlog gets them from the structlog logger
"aiowheel"; any other may listen to the standard library's logger of that name, which has a
NullHandler. structlog itself is never configured here.
"""

from __future__ import annotations

import logging

logging.getLogger("aiowheel").addHandler(logging.NullHandler())


def emit(event: str, **fields: object) -> None:
    """Log *event* as a warning, with its fields by name.

    Decided at each call, so that configuring structlog after this library was imported counts.
    """
    import structlog  # 20 ms that a process without events need not pay

    if structlog.is_configured():
        structlog.get_logger("aiowheel").warning(event, **fields)
    else:
        logger = logging.getLogger("aiowheel")
        if logger.isEnabledFor(logging.WARNING):
            text = " ".join(f"{name}={value!r}" for name, value in fields.items())
            logger.warning("%s %s", event, text)
