"""What monitoring systems are told, one third party a file. Rank 4.

Import the file you need: `aiowheel.instrumentation.prometheus` or `.opentelemetry`. The log events
of structlog need no file: they flow once the application has configured structlog.
"""

__all__ = ()
