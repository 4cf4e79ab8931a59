"""aiowheel logs its events through the structlog that the application has configured.

Without structlog they go to the standard library's logger `aiowheel`, which is silent by default.

Prints:
    event='aiowheel.purgatory_full' purgatory='orders' max_pending=2
    refused: purgatory 'orders' holds its max_pending of 2 operations
    event='aiowheel.purgatory_closed_with_pending' purgatory='orders' pending=2 drain='expire'
    event='aiowheel.slow_callback' callback=... seconds=...
"""

import asyncio
import time

import structlog

import aiowheel


async def main() -> None:
    """Fill a purgatory, close it with pending operations, and block the loop."""
    async with aiowheel.Purgatory("orders", max_pending=2) as purgatory:
        for _ in range(3):
            try:
                purgatory.wait_for(lambda: False, ["shipped"], timeout=30)
            except aiowheel.PurgatoryFullError as error:
                print("refused:", error)
    aiowheel.call_later(0, time.sleep, 0.11)
    await asyncio.sleep(0.01)


structlog.configure(
    processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
    logger_factory=structlog.PrintLoggerFactory(),
)
asyncio.run(main())
