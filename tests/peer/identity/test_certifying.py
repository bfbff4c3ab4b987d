"""Certificates of a ring: only its issuers make them, and only for the keys that they were given for."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ringmq.overlay.core.ids import Id
from ringmq.peer.identity import certifying
from ringmq.peer.identity.certifying import Issuer

FOUNDER = certifying.found("hall 7")
SALT = bytes(16)


def test_keys_differ() -> None:
    assert certifying.new_key() != certifying.new_key()
    key = certifying.new_key()
    assert certifying.public_part(key) == certifying.public_part(key)


def test_names_longer_than_a_certificate_takes_are_cut() -> None:
    assert certifying.found("n" * 128)
    public = certifying.public_part(certifying.new_key())
    assert certifying.certify(FOUNDER, public, SALT, "n" * 128)


def other_kind() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    "public_key",
    [b"", b"key", other_kind(), certifying.public_part(FOUNDER.key) + b"x"],
    ids=["empty", "garbage", "P-256", "too long"],
)
def test_a_public_key_of_another_kind_is_not_certified(public_key: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        certifying.certify(FOUNDER, public_key, SALT, "peer")


def test_a_text_is_of_the_ring_if_one_of_its_issuers_signed_it() -> None:
    issuer = certifying.certify_issuer(FOUNDER, Id(7))
    for signer in (FOUNDER, issuer):
        signature = certifying.sign(signer, b"text")
        assert certifying.verify(FOUNDER.certificate, signer.certificate, b"text", signature)
        assert not certifying.verify(FOUNDER.certificate, signer.certificate, b"another", signature)


def test_a_text_of_anybody_else_is_not_of_the_ring() -> None:
    foreign = certifying.found("hall 7")
    key = certifying.new_key()
    _, certificate = certifying.certify(FOUNDER, certifying.public_part(key), SALT, "peer")
    for signer in (foreign, certifying.certify_issuer(foreign, Id(7)), Issuer(key, certificate)):
        signature = certifying.sign(signer, b"text")
        assert not certifying.verify(FOUNDER.certificate, signer.certificate, b"text", signature)
    assert not certifying.verify(FOUNDER.certificate, b"garbage", b"text", b"")
