"""The `aiowheel` command: one file per subcommand. Rank 5; needs the `cli` extra."""

from aiowheel.errors import MissingExtraError

try:
    from aiowheel.cli._app import run as run
except ModuleNotFoundError as _error:
    if _error.name not in {"typer", "rich", "click"}:
        raise
    raise MissingExtraError("cli") from _error

__all__ = ("run",)
