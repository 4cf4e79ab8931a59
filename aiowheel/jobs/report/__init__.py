"""The report on a recorded trace, and the parts that all pages and charts share. Rank 5."""
