"""How a delayed operation ended. Rank 2."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """Every operation is PENDING until exactly one of the others becomes true of it."""

    PENDING = "pending"
    COMPLETED = "completed"  #: its condition was met, or somebody forced it
    EXPIRED = "expired"  #: its timeout elapsed first, or the purgatory was closed
    CANCELLED = "cancelled"  #: by its owner, its awaiting task, or for a key
    FAILED = "failed"  #: its `try_complete` or `on_complete` raised
