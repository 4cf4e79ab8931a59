"""`aiowheel idle` over a table of touches that is given by a URI. Rank 5."""

import sys
import time as clock
from collections.abc import Mapping
from contextlib import ExitStack

from aiowheel._progress import Progress
from aiowheel.cli._destination import check_apart
from aiowheel.cli._job_output import print_result
from aiowheel.cli._session import OpenSession
from aiowheel.errors import BadInputError, MissingExtraError
from aiowheel.jobs.spark.uris import Topic, parse_uri
from aiowheel.readers import LATEST_TIME, Format, Unit


def run_table(
    uris: list[str],
    out: str,
    rejects: str | None,
    *,
    timeout: int,
    unit: Unit,
    form: Format | None,
    topic_options: Mapping[str, str],
    open_session: OpenSession,
    as_json: bool,
) -> None:
    """Find the idle events of a table of touches, write them as a table, and print the result.

    Args:
        uris: Exactly one URI, of a table with the columns ``key`` and ``t``.
        out: URI for the events.
        rejects: URI for the rows that cannot be used; None: they are only counted.
        timeout: Timeout in *unit*.
        unit: Unit of all times.
        form: Format of files; None: Parquet.
        topic_options: Options for the reader and the writer of a topic.
        open_session: Opens a Spark session.
        as_json: Print JSON instead of lines.

    Raises:
        BadInputError: There are several inputs, or a URI or a table cannot be used.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark fails.
    """
    started = clock.perf_counter()
    if len(uris) != 1:
        raise BadInputError(f"{' '.join(uris)}: a URI must be the only input")
    try:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

        from aiowheel.jobs.idle.parquet_touches import flaw_of_touch
        from aiowheel.jobs.idle.transform import idle_events
        from aiowheel.jobs.spark.kafka import REJECTS_KEY
        from aiowheel.jobs.spark.kept import kept_on_disk
        from aiowheel.jobs.spark.sources import Source, read_touches, readable, unreadable
        from aiowheel.jobs.spark.targets import check_replaceable, write_rows
    except ImportError as error:
        raise MissingExtraError("spark") from error
    outputs = {"--out": out} | ({} if rejects is None else {"--rejects": rejects})
    check_apart(uris, outputs)
    source = Source(uris[0], form or Format.PARQUET, options=topic_options)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress())
        progress.show("starting Spark")
        spark = stack.enter_context(open_session(uris=[*uris, *outputs.values()]))
        for place in outputs.values():
            check_replaceable(spark, place)
        stack.enter_context(progress.tasks_of(spark, "idle"))
        seen = Observation()
        rows = read_touches(spark, source, flaw_of_touch(0, F.lit(LATEST_TIME - timeout)))
        if rejects is not None and isinstance(parse_uri(source.uri), Topic):
            # Both results must be of the same rows, and a topic grows between two queries.
            rows, _ = stack.enter_context(kept_on_disk(rows))
        counted = rows.observe(
            seen, F.count(F.lit(1)).alias("rows"), F.count("reason").alias("rejected")
        )
        events = idle_events(readable(counted), key="key", time="t", timeout=timeout)
        idle = events.select("fire", "key")
        written = write_rows(idle, out, key=("key", "fire"), options=topic_options)
        if rejects is not None:
            write_rows(unreadable(rows), rejects, key=REJECTS_KEY, options=topic_options)
        read, rejected = int(seen.get["rows"]), int(seen.get["rejected"])
    result = {
        "engine": "spark",
        "unit": unit.value,
        "timeout": timeout,
        "rows_read": read,
        "rows": read - rejected,
        "rejected": rejected,
        "idle_events": written,
        "out": out,
        "seconds": round(clock.perf_counter() - started, 3),
    }
    print_result(result, as_json=as_json)
    if rejected and rejects is None:
        print(f"aiowheel: {rejected:,} rows rejected: --rejects keeps them", file=sys.stderr)
