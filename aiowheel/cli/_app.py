"""The `aiowheel` command: its subcommands, and the exit codes of errors. Rank 5.

A subcommand is a plain function, or a typer application with subcommands of its own, in a file of
the same name (`idle` in `idle.py`). The function itself imports heavy modules, so that
`aiowheel --help` is quick. The code of `CHECKOUT_COMMANDS` is outside the package.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aiowheel._build import __version__
from aiowheel._printable import printable
from aiowheel.cli._checkout import CHECKOUT_COMMANDS
from aiowheel.cli._signals import signals_kept, terminated_like_interrupted
from aiowheel.errors import AiowheelError, BadInputError

#: Each command and its line in `aiowheel --help`, in the order of that list. A line of a terminal
#: with 80 columns has room for 63 characters; typer would cut the first paragraph of the help.
COMMANDS = {
    "idle": "Find when the keys of a log fell idle.",
    "serve": "Serve topics to publishers, long polls and subscribers.",
    "durable": "Read and change a store of durable timers.",
    "report": "Report on a trace: timeouts, lateness and hot keys.",
    "tune": "Find the cheapest wheel for a recorded load.",
    "replay": "Replay a trace on another wheel, in virtual time.",
    "simulate": "Run wheels under a random load, in virtual time.",
    "purgatory": "Replay operations and events, or a stream of them.",
    "pending": "List the pending operations of a stream.",
    "flush": "End a stream of operations or of idle keys.",
    "doctor": "Show which build runs, and what is installed.",
    "demo": "Show the library at work in a minute (in a checkout).",
    "bench": "Measure aiowheel beside other tools (in a checkout).",
}

_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class _InOrder(TyperGroup):
    """The commands in the order of `COMMANDS`; typer lists those with subcommands last."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base's
        return [name for name in COMMANDS if name in self.commands]


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: Arguments without the program's name; None means `sys.argv[1:]`.

    Returns:
        0: success. 1: failure. 2: bad usage or bad input. 130: interrupted by SIGINT or SIGTERM.
        With 1 and 2, one line on stderr gives the reason. An unexpected error is raised, with its
        traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # For a known command, only its own module is imported.
    names = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
    _fill_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # the locale's encoding may lack characters of a key
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # If the command has no such option, parsing ends the run anyway.
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
    except KeyboardInterrupt:  # during the imports; later, typer handles it
        return INTERRUPTED
    except BadInputError as exc:
        return _refuse(str(exc), BAD_INPUT)
    except AiowheelError as exc:
        return _refuse(str(exc), FAILED)
    except OSError as exc:
        if exc.strerror is None:  # not an error of the system, but an unexpected one
            raise
        where = f"{exc.filename}: " if exc.filename else ""
        return _refuse(f"{where}{exc.strerror}", FAILED)
    return code if isinstance(code, int) else DONE


def _fill_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed.

    Otherwise `print` would write errors to stdout, and the next file that is opened, such as a
    result, would become a standard stream of the programs that this one starts.
    """
    # Each `open` gets the lowest free number, which is that of the stream.
    for stream in (sys.__stdin__, sys.__stdout__):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)
    if sys.__stderr__ is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open to the end of the program


def build_app(names: Iterable[str]) -> typer.Typer:
    """Return a typer application of the subcommands *names*."""
    # Without rich markup the help is quick, and is plain text in pipes and with NO_COLOR.
    app = typer.Typer(cls=_InOrder, rich_markup_mode=None)
    app.callback()(_aiowheel)
    for name in names:
        elsewhere = CHECKOUT_COMMANDS.get(name)
        if elsewhere is not None and not elsewhere.is_here:
            refuse = app.command(name, help=elsewhere.help, context_settings=_ANY_ARGUMENTS)
            refuse(elsewhere.refuse)
            continue
        if elsewhere is None:
            command = getattr(import_module(f"aiowheel.cli.{name}"), name)
        else:
            command = elsewhere.load()
        if isinstance(command, typer.Typer):  # it has subcommands
            app.add_typer(command, name=name, short_help=COMMANDS[name])
        else:
            app.command(name, short_help=COMMANDS[name])(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _aiowheel(
    *,
    version: Annotated[  # handled by its callback
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Timing wheels, purgatories of delayed operations, and jobs that analyse them."""


def _reason(exc: typer.TyperException) -> str:
    """Return typer's message, with the bad value if typer leaves it out."""
    text = exc.format_message()
    flaws = getattr(exc.__cause__, "errors", None)  # errors of pydantic, which parses for typer
    if flaws is None:
        return text
    flaw = flaws()[0]
    if flaw["type"] == "value_error":  # an error of an enumeration names the value already
        return text.replace("Value error, ", "")
    return f"{text}, got {flaw['input']!r}"


def _refuse(reason: str, code: int) -> int:
    line = re.sub(r"\s*\n\s*", " ", reason.rstrip())
    print(f"aiowheel: {printable(line)}", file=sys.stderr)
    return code
