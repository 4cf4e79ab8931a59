"""The subcommands, which the command line imports by name. Rank 5."""

from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "cli"

hiddenimports = [f"aiowheel.cli.{path.stem}" for path in sorted(_FOLDER.glob("[!_]*.py"))]
