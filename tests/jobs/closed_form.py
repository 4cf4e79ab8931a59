"""The expected result of a simulation as one SQL query, without a wheel."""

from typing import TYPE_CHECKING, Any

from aiowheel.jobs.wheels.simulate import Sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One row per operation: its deadline in ticks, rounded up, and its end. At one instant timeouts
# precede arrivals, and arrivals precede completions.
_OPERATIONS = """
    select shard, created, ends, created div {tick} as created_tick,
           (created + {timeout} + {tick} - 1) div {tick} as tick,
           (created + {timeout} + {tick} - 1) div {tick} * {tick} as expiry
    from load
"""
# The bucket of each overflow level that covers the operation's tick: an entry stops there while
# cascading if the bucket begins after its creation and before its own tick.
_STOPS = """
    select shard, explode(array_distinct(filter(
        transform(array({widths}), width -> tick div width * width),
        stop -> stop > created_tick and stop < tick and stop * {tick} <= ends))) as stop
    from operations
"""
_PENDING = """
    select shard, sum(step) over (partition by shard order by at, rank
                                  rows between unbounded preceding and current row) as pending
    from (select shard, created as at, 1 as rank, 1 as step from operations
          union all
          select shard, least(ends, expiry), if(ends < expiry, 2, 0), -1 from operations)
"""
_SHARDS = """
    select o.shard, count(*) as operations, count_if(ends < expiry) as completed,
           count_if(ends >= expiry) as expired,
           sum(if(ends >= expiry, expiry - created - {timeout}, 0)) as late_sum_ns,
           max(if(ends >= expiry, expiry - created - {timeout}, 0)) as late_max_ns,
           max(created) as span_ns
    from operations o group by o.shard
"""
_WAKE_UPS = """
    select shard, count(distinct stop) as wake_ups
    from (select shard, stop from stops
          union all select shard, tick from operations where ends >= expiry) group by shard
"""
_ALL = """
    select s.shard, s.operations, completed, expired, s.operations + coalesce(c, 0) as inserts,
           coalesce(c, 0) as cascaded, coalesce(wake_ups, 0) as wake_ups, late_sum_ns, peak_pending,
           late_max_ns, span_ns
    from shards s
    left join (select shard, count(*) as c from stops group by shard) using (shard)
    left join wake_ups using (shard)
    join (select shard, max(pending) as peak_pending from pending group by shard) using (shard)
    order by s.shard
"""


def closed_form(spark: "SparkSession", sweep: Sweep) -> list[dict[str, Any]]:
    """Return `SHARDS` of a sweep with one setting, without levels, from the view `load`."""
    setting = {
        "tick": sweep.ticks_ns[0],
        "wheel_size": sweep.wheel_sizes[0],
        "timeout": sweep.timeouts_ns[0],
        # Widths of the levels above the finest, in ticks; more levels than any load here needs.
        "widths": ", ".join(f"{sweep.wheel_sizes[0] ** level}L" for level in range(1, 7)),
    }
    for name, text in (
        ("operations", _OPERATIONS),
        ("stops", _STOPS),
        ("pending", _PENDING),
        ("shards", _SHARDS),
        ("wake_ups", _WAKE_UPS),
    ):
        spark.sql(text.format(**setting)).createOrReplaceTempView(name)
    return [row.asDict() for row in spark.sql(_ALL).collect()]
