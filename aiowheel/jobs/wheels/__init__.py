"""Wheels in virtual time, under loads that are drawn or recorded. Rank 5."""
