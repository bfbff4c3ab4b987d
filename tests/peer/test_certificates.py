"""The certificates of listeners: renewed ones hold for new connections, wrong ones do not hold at all."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from ringmq.mqtt_front.server.tls import TlsError
from ringmq.peer.certificates import Certificates
from tests.mqtt_front.server.test_tls import HOST, Files, shake_hands


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def serial(certificates: Certificates, client: ssl.SSLContext) -> object:
    """Of the certificate that a client is shown."""
    shown = shown_to(certificates, client).getpeercert()
    assert shown is not None
    return shown["serialNumber"]


def shown_to(certificates: Certificates, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's side of a connection."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificates.wrap_bio(up, down, server_side=True)
    side = client.wrap_bio(down, up, server_hostname=HOST)
    for one in (side, server, side, server):
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return side


def test_new_connections_get_renewed_certificates(files: Files) -> None:
    certificates = Certificates(files.certificate, files.key)
    first = serial(certificates, files.client_context())
    files.issue("server", HOST)
    assert serial(certificates, files.client_context()) == first, "nobody has said that they are others"
    certificates.reload()
    assert serial(certificates, files.client_context()) != first


def test_renewed_certificate_may_have_another_key_type(files: Files) -> None:
    certificates = Certificates(files.certificate, files.key)
    ca = trustme.CA(key_type=trustme.KeyType.RSA)
    issued = ca.issue_cert(HOST, key_type=trustme.KeyType.RSA)
    files.write("server.pem", issued.cert_chain_pems[0].bytes())
    files.write("server.key", issued.private_key_pem.bytes())
    files.write("ca.pem", ca.cert_pem.bytes())
    certificates.reload()
    assert serial(certificates, files.client_context())


def test_reload_of_a_wrong_file_keeps_the_old_certificates(files: Files) -> None:
    certificates = Certificates(files.certificate, files.key)
    first = serial(certificates, files.client_context())
    good = files.certificate.read_bytes()
    for wrong in (b"", files.client.read_bytes(), good[:100] + good[120:]):
        files.write("server.pem", wrong)
        with pytest.raises(TlsError):
            certificates.reload()
        assert serial(certificates, files.client_context()) == first


def test_wrong_file_at_creation_raises(files: Files) -> None:
    with pytest.raises(TlsError, match="no private key in PEM format found"):
        Certificates(files.certificate, files.certificate)


def test_replaced_ca_is_no_longer_trusted(files: Files, tmp_path_factory: pytest.TempPathFactory) -> None:
    certificates = Certificates(files.certificate, files.key, files.ca)
    client = files.client_context(True)
    assert shake_hands(certificates, client).getpeercert()
    files.write("ca.pem", Files(tmp_path_factory.mktemp("other")).ca.read_bytes())
    certificates.reload()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(certificates, client)
