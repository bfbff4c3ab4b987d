"""Proofs: what the certificate of a connection says about the peer at its other end.

Pure: TLS has checked the signatures, and that the other end has the private key. An id is a hash of a public key and of
a salt that the admitting peer has chosen, so nobody can make keys until an id falls next to that of a victim.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from ringmq.overlay.core.ids import ID_BYTES, Id

SALT_BYTES: Final = 16
SCHEME: Final = "ringmq:peer:"
"""Begins the name of a peer in its certificate; its id follows, then `?salt=` and the salt, both in hexadecimal."""
ISSUER: Final = "ringmq issuer "
"""Begins the name of an issuer that is not the founder's authority; the id of its peer follows."""
_PURPOSE: Final = b"ringmq peer id 1"
_ALTERNATIVE_NAMES: Final = b"\x55\x1d\x11"
"""2.5.29.17, subjectAltName (RFC 5280 §4.2.1.6)."""
_URI: Final = 0x86
_EXTENSIONS: Final = 0xA3
_LONG_LENGTH: Final = 0x80


class Proof(NamedTuple):
    """The peer that has the private key of a certificate of this ring."""

    id: Id
    name: str
    issuer: Id | None
    """The peer that has admitted it; None: the authority of the ring's founder."""


class _Element(NamedTuple):
    """One value in DER."""

    tag: int
    content: bytes
    whole: bytes


def id_of(salt: bytes, public_key: bytes) -> Id:
    """The id of a peer. The key is a SubjectPublicKeyInfo in DER."""
    return Id.unpack(sha256(_PURPOSE + salt + public_key).digest()[:ID_BYTES])


def address_of(peer_id: Id, salt: bytes) -> str:
    """The name in a certificate by which `read_proof` finds the id."""
    return f"{SCHEME}{peer_id.hex()}?salt={salt.hex()}"


def public_key_of(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a certificate in DER. Raises ValueError."""
    return _fields(certificate)[5].whole


def read_proof(certificate: bytes) -> Proof | None:
    """The proof in a certificate in DER that TLS has verified. None: it names no id, or one that is not of its key."""
    try:
        fields = _fields(certificate)
        issuer, subject, key = fields[2], fields[4], fields[5].whole
        peer_id, salt = _claim(fields)
        if id_of(salt, key) != peer_id:
            return None
        signer = _common_name(issuer)
        by = Id.parse(signer.removeprefix(ISSUER)) if signer.startswith(ISSUER) else None
        return Proof(peer_id, _common_name(subject), by)
    except (ValueError, IndexError):
        return None


def _fields(certificate: bytes) -> list[_Element]:
    """Of a TBSCertificate without its version: serial number, signature, issuer, validity, subject, key, …"""
    (outer, *_) = _elements(certificate)
    (inner, *_) = _elements(outer.content)
    fields = list(_elements(inner.content))[1:]
    if len(fields) < 7:  # up to the extensions, which each certificate of a ring has
        raise ValueError("too few fields in a certificate")
    return fields


def _claim(fields: list[_Element]) -> tuple[Id, bytes]:
    """The id and the salt that a certificate names. Raises ValueError if there are none."""
    for field in fields[6:]:
        if field.tag != _EXTENSIONS:
            continue
        for extension in _elements(next(_elements(field.content)).content):
            kind, *_, value = _elements(extension.content)
            if kind.content == _ALTERNATIVE_NAMES:
                for name in _elements(next(_elements(value.content)).content):
                    text = name.content.decode("ascii")
                    if name.tag == _URI and text.startswith(SCHEME):
                        peer_id, _, salt = text.removeprefix(SCHEME).partition("?salt=")
                        return Id.parse(peer_id), _salt(salt)
    raise ValueError("no id in a certificate")


def _salt(text: str) -> bytes:
    salt = bytes.fromhex(text)
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt must have {SALT_BYTES} bytes, got {len(salt)}")
    return salt


def _common_name(name: _Element) -> str:
    """The only part that names in certificates of a ring have."""
    (part, *_) = _elements(name.content)
    (pair, *_) = _elements(part.content)
    _, text = _elements(pair.content)
    return text.content.decode("utf-8")


def _elements(data: bytes) -> Iterator[_Element]:
    """The values one after the other in DER. Raises ValueError for a length that does not fit."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a value in DER is cut")
        tag, size, start = data[at], data[at + 1], at + 2
        if size >= _LONG_LENGTH:
            count = size - _LONG_LENGTH
            size, start = int.from_bytes(data[start : start + count], "big"), start + count
        end = start + size
        if end > len(data):
            raise ValueError("a value in DER is cut")
        yield _Element(tag, data[start:end], data[at:end])
        at = end
