"""Programs that measure the Spark jobs of `aiowheel idle` and `aiowheel purgatory`."""
