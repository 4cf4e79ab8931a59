"""Long polls and request limits for Starlette, FastAPI and ASGI. Rank 4; extra `web`."""

from aiowheel.errors import MissingExtraError

try:
    from aiowheel.integrations._lifespan import WheelState as WheelState
    from aiowheel.integrations._lifespan import get_purgatory as get_purgatory
    from aiowheel.integrations._lifespan import get_shared as get_shared
    from aiowheel.integrations._lifespan import get_timer as get_timer
    from aiowheel.integrations._lifespan import wheel_lifespan as wheel_lifespan
    from aiowheel.integrations._long_poll import long_poll as long_poll
    from aiowheel.integrations._long_poll import long_poll_version as long_poll_version
    from aiowheel.integrations._slow_requests import SlowRequestMiddleware as SlowRequestMiddleware
except ImportError as _error:
    raise MissingExtraError("web") from _error

__all__ = (
    "SlowRequestMiddleware",
    "WheelState",
    "get_purgatory",
    "get_shared",
    "get_timer",
    "long_poll",
    "long_poll_version",
    "wheel_lifespan",
)
