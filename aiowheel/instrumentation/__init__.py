"""Metrics for monitoring systems, one system per module. Rank 4.

Import the module you need: `aiowheel.instrumentation.prometheus` or `.opentelemetry`. Log events
need no module: structlog gets them once the application has configured it.
"""

__all__ = ()
