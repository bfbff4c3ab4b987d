"""TLS of a client: makes the context from files, and explains in one line why they cannot be used."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from ringmq.mqtt_front.server.tls import CERTIFICATE, KEY, TlsError, expect, fault_of, load_chain


class TlsFiles(NamedTuple):
    ca: Path | None = None
    """Certificates of the CAs that are trusted; None: those of the system."""
    certificate: Path | None = None
    """The certificate of the client, with its chain, in PEM."""
    key: Path | None = None
    """Its key; None: it stands in the file of the certificate."""


def client_context(files: TlsFiles, *, any_name: bool = False) -> ssl.SSLContext:
    """The context of a client, for TLS 1.2 or newer. Raises TlsError.

    `any_name`: the certificate of the server must be valid, but may be that of another host.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = not any_name
    if files.ca is None:
        context.load_default_certs()
    else:
        expect(files.ca, CERTIFICATE, "certificate")
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError as error:
            raise TlsError(f"{files.ca}: {fault_of(error, 'a certificate cannot be read')}") from None
    if files.certificate is not None:
        key = files.key or files.certificate
        expect(files.certificate, CERTIFICATE, "certificate")
        expect(key, KEY, "private key")
        load_chain(context, files.certificate, key)
    return context
