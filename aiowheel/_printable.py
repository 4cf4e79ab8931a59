"""Text that is safe to print on a terminal. Rank 0."""


def printable(text: object) -> str:
    """Return *text* with every character that is not printable escaped as in a Python literal.

    Keys and names may come from anywhere: none of them commands the terminal, or begins a line.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in plain)
