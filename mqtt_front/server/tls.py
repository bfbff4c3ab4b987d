"""TLS for a listener: makes the context from certificate files, and explains in one line why they cannot be used.

Reads the files when it is called. Knows no socket, and gives a client's certificate no meaning in MQTT.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from ringmq.mqtt_front.errors import FrontError

CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
KEY: Final = "PRIVATE KEY-----"
LONGEST: Final = 1 << 20
"""Maximum size of a file in bytes; the certificates of all public CAs together take a quarter of that."""
_FAULTS: Final = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "KEY_TYPE_MISMATCH": "the key does not belong to the certificate",
    "NO_CERTIFICATE_ASSIGNED": "the key does not belong to the certificate",
    "EE_KEY_TOO_SMALL": "the key is too short to be safe",
    "CA_KEY_TOO_SMALL": "the key of its CA is too short to be safe",
    "CA_MD_TOO_WEAK": "its signature is of a kind that is not safe",
}

ON_FAILURE: ContextVar[Callable[[ssl.SSLError], None] | None] = ContextVar("ON_FAILURE", default=None)
"""Called when the handshake fails whose bytes are being processed. Event loops do not tell a session whose it is."""


class TlsError(FrontError):
    """A file cannot be used: one clear line."""


class AlertingSession(ssl.SSLObject):
    """A TLS session whose failed handshake seems to go on where `ON_FAILURE` is set, so that its alert can be sent."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            failed = ON_FAILURE.get()
            if failed is None:
                raise
            failed(error)
            raise ssl.SSLWantReadError from None


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, *, demand_certificate: bool = True
) -> ssl.SSLContext:
    """The context of a listener, for TLS 1.2 or newer. Raises TlsError.

    `certificate` holds the chain, the server's own first; it and `key` are in PEM, and may be one file. With
    `client_ca`, clients must present a certificate of that CA; with `demand_certificate=False` they may omit it.
    """
    expect(certificate, CERTIFICATE, "certificate")
    expect(key, KEY, "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AlertingSession
    # RFC 8996 deprecates TLS 1.0 and 1.1.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make the server repeat its costly half of the handshake over and over (TLS 1.3 has none of it).
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_chain(context, certificate, key)
    if client_ca is not None:
        expect(client_ca, CERTIFICATE, "certificate")
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise TlsError(f"{client_ca}: {fault_of(error, 'a certificate cannot be read')}") from None
        context.verify_mode = ssl.CERT_REQUIRED if demand_certificate else ssl.CERT_OPTIONAL
    return context


def expect(file: Path, mark: str, what: str) -> None:
    """Raise TlsError unless the file holds such a thing in PEM."""
    try:
        with file.open("rb") as opened:
            text = opened.read(LONGEST + 1)
    except OSError as error:
        raise TlsError(f"cannot read {file}: {error.strerror}") from None
    if len(text) > LONGEST:
        raise TlsError(f"{file}: longer than {LONGEST >> 20} MiB, so it cannot be a {what}")
    if mark.encode() not in text:
        raise TlsError(f"{file}: no {what} in PEM format found")


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Give the context its own certificate. Raises TlsError."""
    asked = False

    def password() -> bytes:
        """Prevents OpenSSL from asking for the password on the terminal."""
        nonlocal asked
        asked = True
        return b""

    try:
        context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            raise TlsError(f"{key}: the key is encrypted; RingMQ cannot ask for its password") from None
        fault = fault_of(error, "the certificate or the key cannot be read")
        raise TlsError(f"{certificate}, {key}: {fault}") from None


def fault_of(error: Exception, otherwise: str) -> str:
    """What is wrong with a file, by OpenSSL's error."""
    reason = getattr(error, "reason", None) or ""
    return _FAULTS.get(reason, f"{otherwise} ({reason})" if reason else otherwise)
