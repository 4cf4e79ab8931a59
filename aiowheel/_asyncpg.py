"""Addresses of PostgreSQL, as asyncpg takes them, and their errors. Rank 4."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from aiowheel._arguments import checked_str
from aiowheel._printable import scheme_only

#: The beginnings of an address.
SCHEMES: Final = ("postgresql://", "postgres://")
_MALFORMED: Final = (
    "dsn must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %2F in place of a slash in "
    "the password, and other special characters in the same way"
)
_MISSING_FILE: Final = (
    "the server's Unix socket, or a certificate or key file of the address, does not exist"
)


def checked_dsn(dsn: object) -> str:
    """Return *dsn* if it may be an address; "" stands for the environment variables of libpq.

    Raises:
        TypeError: *dsn* is not a string.
        ValueError: It has another scheme, for example that of SQLAlchemy, `postgresql+asyncpg`.
    """
    text = checked_str("dsn", dsn)
    if text and not text.startswith(SCHEMES):
        raise ValueError(f"dsn must be {SCHEMES[0]}..., got {scheme_only(text)}")
    return text


@contextmanager
def errors_of_address(malformed: type[Exception]) -> Generator[None]:
    """Explain the errors that `asyncpg.connect` raises in the block because of its address.

    Args:
        malformed: The class of the error for an address that cannot be parsed.

    Raises:
        FileNotFoundError: A file of the address is missing; asyncpg's own error does not name it.
    """
    asyncpg: Any = import_module("asyncpg")
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, _MISSING_FILE) from error
    except (asyncpg.InterfaceError, OSError):  # an option in the DSN; a certificate
        raise
    except (ValueError, OverflowError):  # the second for a port beyond 65,535
        raise malformed(_MALFORMED) from None  # the first may quote a part of the password
