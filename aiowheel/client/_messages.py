"""What a client of topics gets: messages, receipts and refusals. Rank 4."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from aiowheel.errors import AiowheelError

_POSITION = re.compile("[0-9a-f]{8}-[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a topic.

    Attributes:
        topic: The topic's name.
        data: What was published: a string, or what JSON holds.
        version: Its number in the topic, from 1.
        position: Where it stands in the topic, for `TopicClient.subscribe(after=...)`.
        missed: How many messages before it were dropped before this client could get them.
        reset: Whether the topic was lost, by a restart or a removal, and this is the first message
            of its new life; others may have been lost with it.
    """

    topic: str
    data: Any
    version: int
    position: str
    missed: int
    reset: bool


@dataclass(frozen=True, slots=True)
class Published:
    """The service's receipt for a message.

    Attributes:
        topic: The topic's name.
        version: The message's number in the topic, from 1.
        position: Where it stands in the topic.
        woken: Requests that waited for it.
    """

    topic: str
    version: int
    position: str
    woken: int


class TopicRefusedError(AiowheelError):
    """The service refuses a request, and would refuse it again."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        """Name the HTTP status, the word for programs and the sentence for people."""
        super().__init__(status, error, detail)
        self.status = status
        self.error = error
        self.detail = detail

    def __str__(self) -> str:
        return f"the service answered {self.status} {self.error}: {self.detail}"


@dataclass(slots=True)
class Progress:
    """What a subscriber has of a topic.

    Attributes:
        version: Of the last message that it got; 0: of none.
        epoch: The life of the topic in which it was; None: of none.
    """

    version: int = 0
    epoch: str | None = None

    @classmethod
    def after(cls, position: str | None) -> Progress:
        """Begin after the message at *position*, or at the oldest one.

        Raises:
            ValueError: It is no position.
        """
        if position is None:
            return cls()
        if not _POSITION.fullmatch(position):
            raise ValueError(f"after must be the position of a message, got {position!r}")
        epoch, _, version = position.partition("-")
        return cls(int(version), epoch)

    def query(self) -> dict[str, str]:
        """The parameters of the next poll."""
        query = {"since": str(self.version)}
        return query if self.epoch is None else query | {"epoch": self.epoch}
