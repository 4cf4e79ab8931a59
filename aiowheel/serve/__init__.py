"""`aiowheel serve`: topics over long polls, websockets and server-sent events. Rank 5.

Needs the extras `web` and `metrics`.
"""

from aiowheel.errors import MissingExtraError

try:
    from aiowheel.serve._access import Access as Access
    from aiowheel.serve._app import TopicApp as TopicApp
    from aiowheel.serve._certificate import Certificate as Certificate
    from aiowheel.serve._limits import Limits as Limits
    from aiowheel.serve._server import serve as serve
    from aiowheel.serve._workers import is_worker as is_worker
except ImportError as _error:
    raise MissingExtraError("web,metrics") from _error

__all__ = ("Access", "Certificate", "Limits", "TopicApp", "is_worker", "serve")
