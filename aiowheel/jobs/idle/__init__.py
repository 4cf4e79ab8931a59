"""Idle detection over recorded and arriving touches. Rank 5."""
