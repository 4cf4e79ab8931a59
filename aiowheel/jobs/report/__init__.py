"""The report on a recorded trace, and what pages and charts share. Rank 5."""
