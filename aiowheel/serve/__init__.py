"""`aiowheel serve`: named topics over long polls and websockets. Rank 5.

Needs the extras `web` and `metrics`.
"""

from aiowheel.serve._app import TopicApp as TopicApp
from aiowheel.serve._limits import Limits as Limits
from aiowheel.serve._server import serve as serve

__all__ = ("Limits", "TopicApp", "serve")
