"""The TLS certificate of the service, which can be reloaded while it runs. Rank 5."""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack

from aiowheel.errors import AiowheelError
from aiowheel.serve._setting_files import setting_file


class Certificate:
    """A certificate and its key, read from files.

    Args:
        cert: PEM file of the certificate and its intermediate certificates.
        key: PEM file of the private key, without a passphrase. None: *cert* holds the key too.

    Attributes:
        context: TLS context of new connections, for TLS 1.2 or later.

    Raises:
        AiowheelError: A file cannot be read, or key and certificate do not match.
    """

    def __init__(self, cert: str, key: str | None) -> None:
        self._cert = os.fsdecode(cert)
        self._key = None if key is None else os.fsdecode(key)
        self.context: ssl.SSLContext = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load()

    def load(self) -> None:
        """Read the files again; open connections keep the earlier certificate.

        Raises:
            AiowheelError: As for the class; new connections get the earlier certificate.
        """
        # A throw-away context loads them first: a wrong key would leave the real context with the
        # new certificate and the old key.
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                with ExitStack() as stack:
                    cert = stack.enter_context(setting_file(self._cert))
                    key = None
                    if self._key is not None:
                        key = stack.enter_context(setting_file(self._key))
                    context.load_cert_chain(cert, key, password=_no_passphrase)
            except (OSError, ValueError) as error:  # SSLError is an OSError
                files = self._cert if self._key is None else f"{self._cert} and {self._key}"
                reason = getattr(error, "strerror", None) or error
                raise AiowheelError(f"cannot use the certificate in {files}: {reason}") from error


def _no_passphrase() -> str:
    return ""  # without this callback, OpenSSL prompts for a passphrase on the terminal
