"""Idle detection over recorded and streaming touches. Rank 5."""
