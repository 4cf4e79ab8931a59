"""One row of a table as it was read. Rank 4."""

#: The row itself: its line, or its fields. `raw_text` writes it as text.
Raw = str | list[str]

#: What a column may be called; the first name that is there counts.
Names = tuple[str, ...]

#: Line number (from 1), key, time as written, flaw ("" when there is none), the row itself. A bare
#: tuple, because there is one for every row of the input.
Record = tuple[int, str, str, str, Raw]
