"""`aiowheel durable`: reads and changes a store of durable timers. Rank 5."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from aiowheel._asyncpg import SCHEMES
from aiowheel._printable import is_unicode, printable, scheme_only
from aiowheel._progress import Progress
from aiowheel.cli._destination import check_folder
from aiowheel.cli._duration import duration
from aiowheel.cli._job_output import print_json, print_table
from aiowheel.cli._options import Json, number, path_of
from aiowheel.durable import DeadLetter, Row, SQLiteStore, Store
from aiowheel.durable.operations import Cancel, Operation, Placed, Redrive, Removed, Result
from aiowheel.errors import BadInputError, MissingExtraError

T = TypeVar("T")

Where = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="An SQLite file, or a PostgreSQL address: postgresql://..."
    ),
]
Limit = Annotated[int, number(min=1, max=1_000_000, help="Maximum number shown.")]

durable: typer.Typer = typer.Typer(rich_markup_mode=None)


@durable.callback(invoke_without_command=True)
def _durable(context: typer.Context) -> None:
    """Read and change a store of durable timers.

    \b
    Example:
      aiowheel durable list app.db
      aiowheel durable redrive app.db 3
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def _with_store(where: str, use: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
    async def run() -> T:
        store = _store_at(where, create=create)
        await store.open(create=create)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def _store_at(where: str, *, create: bool) -> Store:
    if where.startswith(SCHEMES):
        from aiowheel.durable import PostgresStore

        return PostgresStore(where)
    if "://" in where:
        got = scheme_only(where)
        raise BadInputError(f"STORE must be an SQLite file or postgresql://..., got {got}")
    path = Path(where)
    if path.exists() and not path.is_file():
        raise BadInputError(f"STORE must be an SQLite file, got {where}, which is not a file")
    if not path.exists() and not create:
        raise BadInputError(f"{where}: no such file")
    return SQLiteStore(path)


def _execute(where: str, operation: Operation) -> Result:
    async def execute(store: Store) -> Result:
        (result,) = await store.commit("", [operation])  # the owner of the partition is notified
        if isinstance(result, Exception):
            raise result
        return result

    return _with_store(where, execute)


def _timer(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "handler": row.handler,
        "due": row.due.isoformat(),
        "fire": row.identity(),
        "failed_attempts": row.attempt,
        "recurrence": row.recurrence,
        "payload_hex": row.payload.hex(),
    }


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "name": letter.name,
        "handler": letter.handler,
        "due": letter.due.isoformat(),
        "fire": letter.fire_id,
        "attempts": letter.attempts,
        "error": letter.error,
        "payload_hex": letter.payload.hex(),
    }


def _time(instant: datetime) -> str:
    return instant.isoformat(sep=" ", timespec="milliseconds")


@durable.command("list", short_help="List pending timers, and count the others.")
def list_(
    store: Where,
    *,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Only names with this prefix.")] = "",
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Print counts of the store, and a list of pending timers, sorted by name.

    \b
    Example:
      aiowheel durable list app.db
      aiowheel durable list app.db --prefix order: --json
    """
    if not is_unicode(prefix):
        raise BadInputError(f"--prefix must be Unicode text, got {prefix!r}")

    async def read(opened: Store) -> tuple[Any, list[Row]]:
        summary = await opened.summary()
        rows: list[Row] = []
        after = ""
        while page := await opened.rows(after=after, prefix=prefix, limit=limit - len(rows)):
            rows += page
            after = page[-1].name
        return summary, rows

    summary, rows = _with_store(store, read)
    if json:
        print_json({**summary._asdict(), "timers": [_timer(row) for row in rows]})
        return
    print(f"{summary.pending:,} pending, {summary.overdue:,} overdue, {summary.dead:,} dead")
    if rows:
        cells = [
            (row.name, row.handler, _time(row.due), "yes" if row.recurrence else "no")
            for row in rows
        ]
        print_table(("name", "handler", "due (UTC)", "recurs"), cells, texts=4)


@durable.command()
def show(
    store: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a pending timer.")],
    *,
    json: Json = False,
) -> None:
    """Show one pending timer.

    \b
    Example:
      aiowheel durable show app.db order:7
    """
    row = _with_store(store, lambda opened: opened.get(name)) if is_unicode(name) else None
    if row is None:
        raise BadInputError(f"NAME must be the name of a pending timer, got {name!r}")
    if json:
        print_json(_timer(row))
        return
    for field, value in _timer(row).items():
        shown = "none" if value is None else value
        print(f"{field.replace('_', ' ')}: {printable(shown)}")


@durable.command(short_help="Delete one pending timer.")
def cancel(
    store: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a pending timer.")],
    *,
    json: Json = False,
) -> None:
    """Delete one pending timer; exit with 1 if the timer may still fire.

    A timer that is due within the lease of a running process may fire before that process reads
    the change.

    \b
    Example:
      aiowheel durable cancel app.db order:7
    """
    removed = _execute(store, Cancel(name)) if is_unicode(name) else None
    if not isinstance(removed, Removed):
        raise BadInputError(f"NAME must be the name of a pending timer, got {name!r}")
    if json:
        print_json({"name": name, "deleted": True, "will_not_fire": removed.is_final})
    else:
        word = "cancelled" if removed.is_final else "deleted, but it may fire or have fired"
        print(f"{printable(name)}: {word}")
    if not removed.is_final:
        raise typer.Exit(1)


@durable.command()
def dead(store: Where, *, limit: Limit = 100, json: Json = False) -> None:
    """List dead letters: fires whose attempts have all failed.

    \b
    Example:
      aiowheel durable dead app.db
    """

    async def read(opened: Store) -> tuple[list[DeadLetter], int]:
        letters: list[DeadLetter] = []
        after = 0
        while page := await opened.dead_letters(after=after, limit=limit - len(letters)):
            letters += page
            after = page[-1].id
        count = len(letters)
        return letters, count if count < limit else (await opened.summary()).dead

    letters, count = _with_store(store, read)
    if json:
        print_json({"count": count, "dead": [_letter(letter) for letter in letters]})
        return
    hidden = f", {count - len(letters):,} not shown" if count > len(letters) else ""
    noun = "letter" if count == 1 else "letters"
    print(f"{count:,} dead {noun}{hidden}")
    if letters:
        cells = [
            (str(letter.id), letter.name, letter.handler, _time(letter.due), letter.error)
            for letter in letters
        ]
        print_table(("id", "name", "handler", "due (UTC)", "error"), cells, texts=5)


@durable.command()
def redrive(
    store: Where,
    number: Annotated[
        int, typer.Argument(min=1, max=2**63 - 1, metavar="ID", help="Id of a dead letter.")
    ],
    *,
    json: Json = False,
) -> None:
    """Fire a dead letter again, now.

    \b
    Example:
      aiowheel durable redrive app.db 3
    """
    placed = _execute(store, Redrive(number))
    if not isinstance(placed, Placed):
        raise BadInputError(f"ID must be the id of a dead letter, got {number}")
    if json:
        print_json(_timer(placed.row))
    else:
        print(f"dead letter {number} is due as {printable(placed.row.name)}")


@durable.command(short_help="Write the store as a trace for other commands.")
def export(
    store: Where,
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder for the trace; must hold no trace.", parser=path_of
        ),
    ],
    ahead: Annotated[
        float | None,
        duration(least=0, most=1e9, help="Leave out timers that are due later."),
    ] = None,
    json: Json = False,
) -> None:
    """Write the store as a trace for report, tune, simulate and Spark jobs.

    A pending timer is written as a fire at its due time, an overdue timer as a fire at this moment,
    with its lateness so far. Dead letters are written as failures.

    \b
    Example:
      aiowheel durable export app.db --out trace/
      aiowheel durable export app.db --out trace/ --ahead 1h && aiowheel report trace/
    """
    try:
        from aiowheel.cli._durable_trace import export_trace
    except ImportError as error:
        raise MissingExtraError("trace") from error
    check_folder(out)
    ahead_us = None if ahead is None else round(ahead * 1e6)
    with Progress() as progress:
        written = _with_store(
            store, lambda opened: export_trace(opened, out, progress, ahead_us=ahead_us)
        )
    if json:
        print_json({**written._asdict(), "file": str(written.file)})
        return
    print(
        f"{written.pending:,} pending, {written.overdue:,} overdue, {written.dead:,} dead; "
        f"trace  {printable(written.file)}"
    )


@durable.command()
def migrate(store: Where, *, json: Json = False) -> None:
    """Create missing tables, and check the version of existing ones.

    \b
    Example:
      aiowheel durable migrate postgresql://localhost/app
    """

    async def read(opened: Store) -> tuple[int, int]:
        return opened.version, opened.partitions

    version, partitions = _with_store(store, read, create=True)
    if json:
        print_json({"version": version, "partitions": partitions})
    else:
        print(f"the tables are of version {version}, with {partitions} partitions")


@durable.command(short_help="Check a store for inconsistencies.")
def check(store: Where, *, json: Json = False) -> None:
    """Check a store for inconsistencies; exit with 1 if there are some.

    \b
    Example:
      aiowheel durable check app.db --json
    """
    with Progress() as progress:
        progress.show("checking")
        flaws = _with_store(store, lambda opened: opened.check())
    if json:
        print_json({"flaws": flaws})
    else:
        for flaw in flaws:
            print(printable(flaw))
        print(f"{len(flaws)} {'flaw' if len(flaws) == 1 else 'flaws'}")
    if flaws:
        raise typer.Exit(1)
