"""The messages, receipts and errors of the client of topics. Rank 4."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from aiowheel._arguments import checked_str, safe_repr
from aiowheel.errors import AiowheelError

_POSITION = re.compile("[0-9a-f]{8}-[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a topic.

    Attributes:
        topic: Name of the topic.
        data: The published value: a string, or another JSON value.
        version: Number of the message in its topic, from 1.
        position: Position in the topic, for `TopicClient.subscribe(after=...)`.
        missed: Number of messages before this one that were dropped before this client got them.
        reset: Whether the topic was removed, or lost in a restart, and this is the first message
            that the client gets of the new topic. Messages of the old topic may be lost.
    """

    topic: str
    data: Any
    version: int
    position: str
    missed: int
    reset: bool


@dataclass(frozen=True, slots=True)
class Published:
    """The receipt of the service for a published message.

    Attributes:
        topic: Name of the topic.
        version: Number of the message in its topic, from 1.
        position: Position in the topic.
        woken: Number of requests that waited for it.
    """

    topic: str
    version: int
    position: str
    woken: int


class TopicRefusedError(AiowheelError):
    """The service refuses a request, and would refuse it again.

    Args:
        status: HTTP status.
        error: One word for programs.
        detail: One sentence for people.
    """

    def __init__(self, status: int, error: str, detail: str) -> None:
        """Store the arguments as attributes of the same names."""
        super().__init__(status, error, detail)
        self.status = status
        self.error = error
        self.detail = detail

    def __str__(self) -> str:
        return f"the service answered {self.status} {self.error}: {self.detail}"


@dataclass(slots=True)
class Progress:
    """The position of a subscriber in a topic.

    Attributes:
        version: Version of the last received message; 0: no message.
        epoch: Epoch of that message; None: no message.
    """

    version: int = 0
    epoch: str | None = None

    @classmethod
    def after(cls, position: str | None) -> Progress:
        """Return the progress after the message at *position*; None: before the oldest message.

        Raises:
            ValueError: *position* is malformed.
        """
        if position is None:
            return cls()
        if not _POSITION.fullmatch(checked_str("after", position)):
            raise ValueError(f"after must be the position of a message, got {safe_repr(position)}")
        epoch, _, version = position.partition("-")
        return cls(int(version), epoch)

    def query(self) -> dict[str, str]:
        """Return the query parameters of the next poll."""
        query = {"since": str(self.version)}
        return query if self.epoch is None else query | {"epoch": self.epoch}
