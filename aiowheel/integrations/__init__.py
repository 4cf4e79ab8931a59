"""Timers and purgatories inside web frameworks and network servers. Rank 4.

Import the file you need: `aiowheel.integrations.asgi` (Starlette, FastAPI, any ASGI server),
`.aiohttp`, and, without any extra, `.connections` for asyncio's protocols and streams.
"""

__all__ = ()
