"""Log events: every event of the package reaches the logger that the application configured."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from aiowheel._events import emit

PACKAGE = Path(__file__).parent.parent / "aiowheel"

pytestmark = pytest.mark.one_build


def emitted() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each event in the sources, with the names of its fields."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="emit" | "emit_info"),
                    args=[ast.Constant(value=str(event)), *_],
                    keywords=fields,
                ):
                    yield event, tuple(sorted(field.arg for field in fields if field.arg))
                case _:
                    pass


EVENTS = sorted({*emitted()})


@pytest.fixture
def structlog_over_logging() -> Iterator[None]:
    """Configure structlog to pass the fields to the standard library's logging."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("structlog_over_logging")
@pytest.mark.parametrize(("event", "fields"), EVENTS, ids=str)
def test_structlog_can_pass_an_event_to_logging(
    event: str, fields: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """No field has the name of an attribute of LogRecord, which `logging` would refuse."""
    emit(event, **dict.fromkeys(fields, 1))

    (record,) = caplog.records
    assert (record.getMessage(), record.levelno) == (event, logging.WARNING)
    assert {name: getattr(record, name) for name in fields} == dict.fromkeys(fields, 1)


@pytest.mark.parametrize(("event", "fields"), EVENTS, ids=str)
def test_an_event_has_its_own_template(
    event: str, fields: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Tools such as Sentry group the records of `logging` by their template."""
    emit(event, **dict.fromkeys(fields, "100%s"))

    (record,) = caplog.records
    text = " ".join(f"{name}='100%s'" for name in fields)
    assert (record.msg, record.getMessage()) == (f"{event} %s", f"{event} {text}")


def test_the_events_are_found() -> None:
    """Without any, the test above would be skipped."""
    assert ("aiowheel.siblings_lost", ("folder",)) in EVENTS
