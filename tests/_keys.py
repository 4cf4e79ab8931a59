"""Keys for tests of keyed collections."""

from __future__ import annotations

from collections.abc import Callable


class RenamedKey:
    """A key whose name, by which it is compared, may change."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenamedKey) and self.name == other.name


class HookedKey:
    """A key whose hash runs a hook once."""

    hook: Callable[[], object] | None = None
    after = 0  # calls of the hash before that

    def __hash__(self) -> int:
        if self.hook is not None:
            self.after -= 1
            if self.after < 0:
                hook, self.hook = self.hook, None
                hook()
        return 1
