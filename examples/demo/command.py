"""`aiowheel demo`: a demonstration of the library that takes less than two minutes."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from aiowheel.cli._destination import check_folder
from aiowheel.cli._options import Json, number, path_of


def demo(
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the results.", parser=path_of)
    ] = Path("aiowheel-demo"),
    clients: Annotated[int, number(min=1, help="HTTP clients of part 1.")] = 2_000,
    operations: Annotated[int, number(min=1, help="Operations of part 2.")] = 100_000,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="An access log in Common or Combined Log Format."),
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out part 3.")] = False,
    json: Json = False,
) -> None:
    """Serve 2,000 long-polling clients, hold 100,000 operations, and report on both.

    The demo needs no files and no network except the loopback interface. With --log it also finds
    the hosts of an access log that made no request for more than 30 seconds.

    \b
    Example:
      aiowheel demo
      aiowheel demo --log access.log
      aiowheel demo --clients 200 --operations 10000 --no-spark
    """
    from examples.demo._needs import require_packages

    check_folder(out)
    require_packages(with_spark=not no_spark)

    from examples.demo._descriptors import clients_allowed
    from examples.demo._plan import CrowdPlan, HoldPlan
    from examples.demo._run import DemoRun
    from examples.demo._screen import Screen

    screen = Screen(quiet=json)
    allowed = clients_allowed(clients)
    if allowed < clients:
        screen.notice(
            f"only {allowed:,} of {clients:,} clients: the limit of open files allows no more"
        )
    run = DemoRun(CrowdPlan(clients=allowed), HoldPlan(operations=operations), out, screen)
    result = run.run(log, with_spark=not no_spark, as_json=json)
    parts = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in result.seconds.items())
    screen.line(f"\nAll sums agree. Time taken: {parts}.")
    if json:
        print(jsonlib.dumps(result.as_json(), indent=2))
