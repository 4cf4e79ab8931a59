"""Spark itself: session, Java, failures, sources, sinks, checkpoints and watermarks. Rank 5."""
