"""A live web page of a timer's wheels, which any ASGI application can mount.

Rank 4; needs no extra.
"""

from aiowheel.dashboard._app import Dashboard as Dashboard
from aiowheel.dashboard._guard import Guard as Guard
from aiowheel.dashboard._guard import this_machine_only as this_machine_only

__all__ = ("Dashboard", "Guard", "this_machine_only")
