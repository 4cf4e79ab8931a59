"""A client of `aiowheel serve` that resumes its subscriptions. Rank 4; extra `client`."""

from aiowheel.client._client import TopicClient as TopicClient
from aiowheel.client._messages import Message as Message
from aiowheel.client._messages import Published as Published
from aiowheel.client._messages import TopicRefusedError as TopicRefusedError

__all__ = ("Message", "Published", "TopicClient", "TopicRefusedError")
