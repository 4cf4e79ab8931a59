"""One row of a table as read from the file. Rank 4."""

#: The unparsed row: its line, or its fields. `raw_text` converts it to text.
Raw = str | list[str]

#: Possible names of a column; the first one that the table has is used.
Names = tuple[str, ...]

#: Line number (from 1), key, written time, error text ("" if none), unparsed row. A bare tuple,
#: because the reader makes one for every row of the input.
Record = tuple[int, str, str, str, Raw]
