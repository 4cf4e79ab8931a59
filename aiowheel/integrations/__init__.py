"""Timers and purgatories in web frameworks and network servers. Rank 4.

Import the module you need: `aiowheel.integrations.asgi` (Starlette, FastAPI, any ASGI server),
`.aiohttp`, or `.connections` (asyncio's protocols and streams; needs no extra).
"""

__all__ = ()
