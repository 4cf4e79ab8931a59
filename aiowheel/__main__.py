"""`python -m aiowheel`, and the `aiowheel` console script. Rank 5."""

import sys


def main() -> int:
    """Run the command line; without the `cli` extra, print the command that installs it."""
    from aiowheel.errors import MissingExtraError

    try:
        from aiowheel.cli import run
    except KeyboardInterrupt:
        return 130
    except MissingExtraError:
        print("aiowheel: the command line needs: pip install 'aiowheel[cli]'", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
