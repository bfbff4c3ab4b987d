"""Proofs: the id in a certificate counts if it is the hash of its key, and any other bytes prove nothing."""

from __future__ import annotations

import random
import ssl

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.links.proofs import SALT_BYTES, Proof, address_of, id_of, public_key_of, read_proof
from ringmq.peer.identity import certifying
from ringmq.peer.identity.certifying import Issuer

AUTHORITY = certifying.found("ring")
KEY = certifying.new_key()
PUBLIC = certifying.public_part(KEY)
SALT = bytes(range(SALT_BYTES))
ID = id_of(SALT, PUBLIC)


def der(certificate: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.decode())


def certificate(salt: bytes = SALT, name: str = "kitchen", issuer: Issuer = AUTHORITY) -> bytes:
    return der(certifying.certify(issuer, PUBLIC, salt, name)[1])


def test_a_certificate_proves_the_id_of_its_key() -> None:
    assert read_proof(certificate()) == Proof(ID, "kitchen", None)
    assert public_key_of(certificate()) == PUBLIC


def test_the_issuer_that_admitted_the_peer_is_named() -> None:
    issuer = certifying.certify_issuer(AUTHORITY, Id(7))
    assert read_proof(certificate(issuer=issuer)) == Proof(ID, "kitchen", Id(7))


def test_another_salt_gives_another_id() -> None:
    other = read_proof(certificate(salt=bytes(SALT_BYTES)))
    assert other is not None
    assert other.id != ID


@pytest.mark.parametrize(
    "address",
    [
        address_of(Id(ID + 1), SALT),  # the id of another
        address_of(ID, bytes(SALT_BYTES)),
        address_of(ID, SALT[1:]),
        f"ringmq:peer:{ID.hex()}",
        f"ringmq:peer:{ID.hex()}?salt=xyz",
        f"other:peer:{ID.hex()}?salt={SALT.hex()}",
        "",
    ],
    ids=["other id", "other salt", "short salt", "no salt", "no hexadecimal", "other scheme", "nothing"],
)
def test_an_id_that_is_not_of_the_key_is_no_proof(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As only somebody could sign it who has the key of an issuer."""
    monkeypatch.setattr(certifying, "address_of", lambda peer_id, salt: address)
    assert read_proof(certificate()) is None


def test_an_authority_is_no_peer() -> None:
    assert read_proof(der(AUTHORITY.certificate)) is None


def test_names_may_have_any_characters() -> None:
    proof = read_proof(certificate(name="Küche 7"))
    assert proof is not None
    assert proof.name == "Küche 7"


@given(st.binary(max_size=200))
def test_garbage_proves_nothing(garbage: bytes) -> None:
    assert read_proof(garbage) is None


def test_a_changed_certificate_proves_nothing_or_the_same_id() -> None:
    """TLS refuses it before; the reader must survive it."""
    whole, chance = certificate(), random.Random(1)
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        cut = bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed))))])
        proof = read_proof(cut)
        assert proof is None or proof.id == ID


def test_another_program_reads_the_same_certificate() -> None:
    found = x509.load_der_x509_certificate(certificate())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"ringmq:peer:{ID.hex()}?salt={SALT.hex()}"]
    assert found.not_valid_before_utc.year == 1970
    assert found.not_valid_after_utc.year == 9999
