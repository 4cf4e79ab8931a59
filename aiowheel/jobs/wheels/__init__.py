"""Wheels in virtual time, under drawn or recorded loads. Rank 5."""
