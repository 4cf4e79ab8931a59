"""The command's frame: which subcommands there are, and which error ends in which exit code.

Rank 5. A subcommand is a plain function, or a typer application with subcommands of its own, in a
file of its own name (`idle` in `idle.py`); such a file imports what is heavy inside the function,
so that `aiowheel --help` stays quick.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated

import typer

from aiowheel._build import __version__
from aiowheel._printable import printable
from aiowheel.cli._signals import signals_kept, terminated_like_interrupted
from aiowheel.errors import AiowheelError, BadInputError

COMMANDS = (
    "demo",
    "idle",
    "serve",
    "bench",
    "replay",
    "report",
    "simulate",
    "tune",
    "purgatory",
    "pending",
    "flush",
    "durable",
    "doctor",
)

DONE, FAILED, BAD_INPUT, GIVEN_UP = 0, 1, 2, 130


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: Arguments without the program's name; None means `sys.argv[1:]`.

    Returns:
        0 done, 1 failure, 2 bad usage or bad input. For 1 and 2 one line on stderr says why; an
        unexpected error keeps its traceback. 130 when given up, by SIGINT or SIGTERM.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # One known command needs no other command's module.
    names = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
    if isinstance(sys.stdout, TextIOWrapper):  # keys may hold what the locale's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Of a command that does not know the option, parsing ends the run anyway.
        is_stream = "--stream" in arguments
        with signals_kept() if is_stream else terminated_like_interrupted():
            code = build_app(names)(
                args=arguments or ["--help"],
                prog_name="aiowheel",
                standalone_mode=False,
                obj=arguments,
            )
    except typer.TyperException as exc:
        return _refuse(_reason(exc), exc.exit_code)
    except typer.Abort:
        return _refuse("aborted", FAILED)
    except KeyboardInterrupt:  # while modules are imported; later typer sees it
        return GIVEN_UP
    except BadInputError as exc:
        return _refuse(str(exc), BAD_INPUT)
    except AiowheelError as exc:
        return _refuse(str(exc), FAILED)
    except OSError as exc:
        if exc.strerror is None:  # not the system's: an unexpected one of ours
            raise
        where = f"{exc.filename}: " if exc.filename else ""
        return _refuse(f"{where}{exc.strerror}", FAILED)
    return code if isinstance(code, int) else DONE


def build_app(names: Iterable[str]) -> typer.Typer:
    """Collect the named subcommands that exist into one typer application."""
    # Plain help: it is quick, and pipes and NO_COLOR need no care.
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(_aiowheel)
    for name in names:
        module = f"aiowheel.cli.{name}"
        if find_spec(module) is None:
            continue
        command = getattr(import_module(module), name)
        if isinstance(command, typer.Typer):  # it has subcommands
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _aiowheel(
    *,
    version: Annotated[  # its callback is what acts
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Timing wheels, a purgatory of delayed operations, and the jobs that study them."""


def _reason(exc: typer.TyperException) -> str:
    """Typer's words, and the value where they leave it out."""
    text = exc.format_message()
    flaws = getattr(exc.__cause__, "errors", None)  # of pydantic, which reads values for typer
    if flaws is None:
        return text
    flaw = flaws()[0]
    if flaw["type"] == "value_error":  # of an enumeration, which names the value itself
        return text.replace("Value error, ", "")
    return f"{text}, got {flaw['input']!r}"


def _refuse(reason: str, code: int) -> int:
    print(f"aiowheel: {printable(' '.join(reason.split()))}", file=sys.stderr)
    return code
