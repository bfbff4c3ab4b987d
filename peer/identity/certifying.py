"""Makes and reads keys and certificates of a ring, with the package `cryptography`: the only module that needs it.

Owns the form of certificates. They hold for ever, as machines without a battery boot in 1970, and nobody compares
clocks: a peer is excluded by a list, and not by a date. Knows no files. All arguments and results are bytes: keys and
certificates in PEM, public keys as SubjectPublicKeyInfo in DER.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from ringmq.overlay.core.ids import Id
from ringmq.overlay.links.proofs import ISSUER, address_of, id_of

MAX_NAME_CHARS: Final = 64
"""Characters of a name in a certificate (RFC 5280, ub-common-name)."""
_FIRST: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
"""RFC 5280 §4.1.2.5: no well-defined expiration date."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """A private key that signs certificates, and its own certificate."""

    key: bytes
    certificate: bytes

    @property
    def signer(self) -> _Signer:
        return _Signer(x509.load_pem_x509_certificate(self.certificate).subject, _private(self.key))


class _Signer(NamedTuple):
    name: x509.Name
    key: Ed25519PrivateKey


def new_key() -> bytes:
    """A private key."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_part(key: bytes) -> bytes:
    """The public key of a private one."""
    return _spki(_private(key).public_key())


def check(public_key: bytes) -> None:
    """Raise ValueError for a public key that cannot be certified."""
    _public(public_key)


def found(ring: str) -> Issuer:
    """The authority of a new ring."""
    key = new_key()
    itself = _Signer(_name(f"ringmq ring {ring}"), _private(key))
    return Issuer(key, _signed(itself.name, itself.key.public_key(), itself, path_length=1))


def certify(issuer: Issuer, public_key: bytes, salt: bytes, name: str) -> tuple[Id, bytes]:
    """The id and the certificate of a peer. Raises ValueError for a public key of another kind."""
    subject = _public(public_key)
    peer_id = id_of(salt, public_key)
    address = x509.UniformResourceIdentifier(address_of(peer_id, salt))
    return peer_id, _signed(_name(name), subject, issuer.signer, address=address)


def certify_issuer(founder: Issuer, peer_id: Id) -> Issuer:
    """The right to admit others, for the peer with this id. Only the founder's authority can give it."""
    key = new_key()
    name = _name(f"{ISSUER}{peer_id.hex()}")
    return Issuer(key, _signed(name, _private(key).public_key(), founder.signer, path_length=0))


def sign(issuer: Issuer, text: bytes) -> bytes:
    return _private(issuer.key).sign(text)


def verify(root: bytes, signer: bytes, text: bytes, signature: bytes) -> bool:
    """Whether an issuer of the ring has signed the text. `signer` is its certificate, which may be the root itself."""
    try:
        authority, certificate = x509.load_pem_x509_certificate(root), x509.load_pem_x509_certificate(signer)
        if certificate != authority:
            certificate.verify_directly_issued_by(authority)
            if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                return False
        public_key = certificate.public_key()
        if not isinstance(public_key, Ed25519PublicKey):
            return False
        public_key.verify(signature, text)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    return True


def _signed(
    subject: x509.Name,
    public_key: Ed25519PublicKey,
    by: _Signer,
    *,
    path_length: int | None = None,
    address: x509.GeneralName | None = None,
) -> bytes:
    """A certificate: of an authority that may sign for `path_length` others below it, or of the peer at an address."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FIRST)
        .not_valid_after(_LAST)
        .add_extension(x509.BasicConstraints(path_length is not None, path_length), critical=True)
        .add_extension(_usage(authority=path_length is not None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False)
    )
    if address is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(by.key, None).public_bytes(serialization.Encoding.PEM)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:MAX_NAME_CHARS])])


def _private(key: bytes) -> Ed25519PrivateKey:
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ValueError("the private key is not Ed25519")
    return loaded


def _public(public_key: bytes) -> Ed25519PublicKey:
    """Raises ValueError for another kind of key, or another encoding of this one."""
    try:
        loaded = serialization.load_der_public_key(public_key)
    except UnsupportedAlgorithm as error:
        raise ValueError("the public key is not Ed25519") from error
    if not isinstance(loaded, Ed25519PublicKey) or _spki(loaded) != public_key:
        raise ValueError("the public key is not Ed25519")
    return loaded


def _spki(public_key: Ed25519PublicKey) -> bytes:
    return public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
