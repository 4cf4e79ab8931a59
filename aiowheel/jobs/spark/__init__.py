"""Spark itself: a session, its Java, its failures, sinks, checkpoints and watermarks. Rank 5."""
