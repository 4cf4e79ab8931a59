"""Spark jobs over recorded times. Rank 5; every module here but `java` needs `aiowheel[spark]`."""
