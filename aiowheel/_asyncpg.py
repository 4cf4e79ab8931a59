"""The errors of an address of asyncpg. Rank 4."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

_MALFORMED: Final = (
    "dsn must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %2F in place of a slash in "
    "the password, and other special characters in the same way"
)
_MISSING_FILE: Final = (
    "the server's Unix socket, or a certificate or key file of the address, does not exist"
)


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
