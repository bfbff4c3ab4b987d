"""TLS contexts from certificate files made for the test: admitted clients, and a clear line for each unusable file."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key

from ringmq.mqtt_front.server.tls import TlsError, server_context

HOST = "peer.example"


class Files:
    """A CA, a server's certificate, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ca = trustme.CA()
        self.ca = self.write("ca.pem", self._ca.cert_pem.bytes())
        self.certificate, self.key = self.issue("server", HOST)
        self.client, self.client_key = self.issue("client", "client.example")

    def write(self, name: str, data: bytes) -> Path:
        file = self.folder / name
        file.write_bytes(data)
        return file

    def issue(self, name: str, identity: str) -> tuple[Path, Path]:
        issued = self._ca.issue_cert(identity)
        certificate = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        key = issued.private_key_pem.bytes()
        return self.write(f"{name}.pem", certificate), self.write(f"{name}.key", key)

    def client_context(self, with_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if with_certificate:
            context.load_cert_chain(self.client, self.client_key)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """In memory; gives the server's side. Raises SSLError if either does not want the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(up, down, server_side=True),
        client.wrap_bio(down, up, server_hostname=HOST),
    ]
    steps: list[Callable[[], object]] = [side.do_handshake for side in sides]
    # With TLS 1.3 the client has done before the server has seen its certificate: so the server goes last.
    for step in (1, 0, 1, 0, 1, 0):
        try:
            steps[step]()
        except ssl.SSLWantReadError:
            continue
    sides[0].do_handshake()
    return sides[0]


def test_a_server(files: Files) -> None:
    server = shake_hands(server_context(files.certificate, files.key), files.client_context(True))
    assert server.version() == "TLSv1.3"
    assert server.getpeercert() is None, "nobody has asked for it"


def test_certificate_and_key_in_one_file(files: Files) -> None:
    both = files.write("both.pem", files.certificate.read_bytes() + files.key.read_bytes())
    assert shake_hands(server_context(both, both), files.client_context()).version()


def test_tls_1_2_and_nothing_older(files: Files) -> None:
    context = server_context(files.certificate, files.key)
    client = files.client_context()
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(context, client).version() == "TLSv1.2"
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("demanded", [True, False])
def test_a_client_with_a_certificate(files: Files, demanded: bool) -> None:
    context = server_context(files.certificate, files.key, files.ca, demand_certificate=demanded)
    certificate = shake_hands(context, files.client_context(True)).getpeercert()
    assert certificate is not None
    assert certificate["subjectAltName"] == (("DNS", "client.example"),)


def test_a_client_without_one(files: Files) -> None:
    optional = server_context(files.certificate, files.key, files.ca, demand_certificate=False)
    assert shake_hands(optional, files.client_context()).getpeercert() is None
    with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate"):
        shake_hands(server_context(files.certificate, files.key, files.ca), files.client_context())


@pytest.mark.parametrize("demanded", [True, False])
def test_a_client_with_a_certificate_of_somebody_else(files: Files, tmp_path: Path, demanded: bool) -> None:
    context = server_context(files.certificate, files.key, files.ca, demand_certificate=demanded)
    stranger = Files(tmp_path)
    client = files.client_context()
    client.load_cert_chain(stranger.client, stranger.client_key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, client)


# Wrong files


def fault(certificate: Path, key: Path, ca: Path | None = None) -> str:
    with pytest.raises(TlsError) as caught:
        server_context(certificate, key, ca)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_file_that_is_not_there(files: Files, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    expected = f"cannot read {missing}: No such file or directory"
    assert fault(missing, files.key) == expected
    assert fault(files.certificate, missing) == expected
    assert fault(files.certificate, files.key, missing) == expected
    assert fault(tmp_path, files.key) == f"cannot read {tmp_path}: Is a directory"


def test_a_file_with_something_else(files: Files) -> None:
    swapped = f"{files.key}: no certificate in PEM format found"
    assert fault(files.key, files.certificate) == swapped
    assert fault(files.certificate, files.certificate) == f"{files.certificate}: no private key in PEM format found"
    assert fault(files.certificate, files.key, files.key) == swapped


def test_a_file_without_an_end(files: Files) -> None:
    assert fault(Path("/dev/zero"), files.key) == "/dev/zero: longer than 1 MiB, so it cannot be a certificate"


def test_a_key_of_another_certificate(files: Files) -> None:
    text = fault(files.certificate, files.client_key)
    assert text == f"{files.certificate}, {files.client_key}: the key does not belong to the certificate"


def test_a_key_of_another_kind(files: Files, tmp_path: Path) -> None:
    issued = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert(HOST, key_type=trustme.KeyType.RSA)
    key = tmp_path / "rsa.key"
    issued.private_key_pem.write_to_path(str(key))
    assert fault(files.certificate, key).endswith(": the key does not belong to the certificate")


def test_an_encrypted_key(files: Files) -> None:
    """Nobody is asked on the terminal."""
    plain = load_key(files.key.read_bytes(), None)
    secret = plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    encrypted = files.write("encrypted.key", secret)
    text = fault(files.certificate, encrypted)
    assert text == f"{encrypted}: the key is encrypted; RingMQ cannot ask for its password"


def test_broken_files(files: Files) -> None:
    certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
    broken = files.write("broken.pem", certificate[:100] + certificate[120:])
    broken_key = files.write("broken.key", key[:100] + key[120:])
    assert "cannot be read" in fault(broken, files.key)
    assert "cannot be read" in fault(files.certificate, broken_key)
    assert fault(files.certificate, files.key, broken).startswith(f"{broken}: a certificate cannot be read")
