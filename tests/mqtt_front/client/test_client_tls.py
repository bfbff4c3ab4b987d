"""TLS contexts of a client: which servers it trusts, and a clear line for each unusable file."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ringmq.mqtt_front.client.client_tls import TlsFiles, client_context
from ringmq.mqtt_front.server.tls import TlsError, server_context
from tests.mqtt_front.server.test_tls import Files, shake_hands


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def test_a_server_of_the_named_ca_is_trusted(files: Files) -> None:
    server = server_context(files.certificate, files.key)
    assert shake_hands(server, client_context(TlsFiles(files.ca))).version() in ("TLSv1.2", "TLSv1.3")


def test_a_server_of_another_ca_is_not_trusted(files: Files, tmp_path: Path) -> None:
    server = server_context(files.certificate, files.key)
    other = Files(tmp_path)
    for context in (client_context(TlsFiles(other.ca)), client_context(TlsFiles())):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server, context)


def test_a_server_with_another_name_is_trusted_only_if_any_name_will_do(files: Files) -> None:
    server = server_context(*files.issue("other", "other.example"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client_context(TlsFiles(files.ca)))
    assert shake_hands(server, client_context(TlsFiles(files.ca), any_name=True))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(TlsFiles(), any_name=True))


def test_the_client_shows_its_certificate(files: Files) -> None:
    server = server_context(files.certificate, files.key, files.ca)
    assert shake_hands(server, client_context(TlsFiles(files.ca, files.client, files.client_key))).getpeercert()
    both = files.write("both.pem", files.client.read_bytes() + files.client_key.read_bytes())
    assert shake_hands(server, client_context(TlsFiles(files.ca, both))).getpeercert()


def test_unusable_files_are_named(files: Files) -> None:
    missing = files.folder / "missing.pem"
    cases = [
        (TlsFiles(missing), f"cannot read {missing}: No such file or directory"),
        (TlsFiles(files.key), f"{files.key}: no certificate in PEM format found"),
        (TlsFiles(None, files.client), f"{files.client}: no private key in PEM format found"),
        (
            TlsFiles(None, files.client, files.key),
            f"{files.client}, {files.key}: the key does not belong to the certificate",
        ),
    ]
    for wrong, says in cases:
        with pytest.raises(TlsError) as caught:
            client_context(wrong)
        assert str(caught.value) == says
