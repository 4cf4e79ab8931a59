"""The certificate that the service shows, which may be renewed while it runs. Rank 5."""

from __future__ import annotations

import ssl

from aiowheel.errors import AiowheelError


class Certificate:
    """A certificate and its key, read from files.

    Args:
        cert: PEM file of the certificate and those that lead to a root.
        key: PEM file of its private key, without a passphrase; None: it is in *cert* as well.

    Attributes:
        context: For TLS connections to come, 1.2 or later.

    Raises:
        AiowheelError: A file cannot be read, or the two do not belong together.
    """

    def __init__(self, cert: str, key: str | None) -> None:
        self._cert = cert
        self._key = key
        self.context: ssl.SSLContext = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load()

    def load(self) -> None:
        """Read the files again; connections that are open keep what they have.

        Raises:
            AiowheelError: As for the class; the earlier certificate stays.
        """
        # Into a context of no use first: a wrong key would leave the real one with half of each.
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                context.load_cert_chain(self._cert, self._key, password=_no_passphrase)
            except (OSError, ValueError) as error:  # SSLError is an OSError
                files = self._cert if self._key is None else f"{self._cert} and {self._key}"
                reason = getattr(error, "strerror", None) or error
                raise AiowheelError(f"cannot use the certificate in {files}: {reason}") from error


def _no_passphrase() -> str:
    return ""  # else OpenSSL asks for one on the terminal
