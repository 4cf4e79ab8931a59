"""The `aiowheel` command: one file per subcommand. Rank 5; needs the `cli` extra."""

from aiowheel.cli._app import run as run

__all__ = ("run",)
