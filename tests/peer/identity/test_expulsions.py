"""The list of the expelled: only issuers add to it, and two lists make one."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity import certifying, expulsions
from ringmq.peer.identity.certifying import Issuer
from ringmq.peer.identity.expulsions import STORED, Expulsion, Expulsions, SignedExpulsion

FOUNDER = certifying.found("ring")
ISSUER = certifying.certify_issuer(FOUNDER, Id(7))
VERIFY = partial(certifying.verify, FOUNDER.certificate)


def entry(peer: int, by: Issuer = FOUNDER, **changes: object) -> SignedExpulsion:
    expulsion = Expulsion(Id(peer).hex(), f"peer-{peer}", "first", 1000)
    signature = certifying.sign(by, expulsion.text).hex()
    return SignedExpulsion(msgspec.structs.replace(expulsion, **changes), signature, by.certificate.decode())


@pytest.fixture
def ours(tmp_path: Path) -> Expulsions:
    return Expulsions(tmp_path)


def test_an_empty_list_has_no_digest(ours: Expulsions) -> None:
    assert (ours.digest, Id(1) in ours, ours.get(Id(1)), ours.document()) == (b"", False, None, b"[]")


def test_what_an_issuer_has_signed_counts_also_after_a_restart(ours: Expulsions, tmp_path: Path) -> None:
    assert [found.name for found in ours.learn([entry(1), entry(2, ISSUER)], VERIFY)] == ["peer-1", "peer-2"]
    again = Expulsions(tmp_path)
    for found in (ours, again):
        assert Id(1) in found
        assert Id(2) in found
        assert Id(3) not in found
    assert again.digest == ours.digest
    assert ours.learn([entry(1)], VERIFY) == []


@pytest.mark.parametrize(
    "forged",
    [
        entry(1, certifying.found("ring")),
        entry(1, certifying.certify_issuer(certifying.found("ring"), Id(7))),
        entry(1, id=Id(2).hex()),
        entry(1, name="another"),
        msgspec.structs.replace(entry(1), signature=""),
        msgspec.structs.replace(entry(1), signer="garbage"),
    ],
    ids=["other founder", "other issuer", "other id", "other words", "no signature", "no signer"],
)
def test_a_forged_entry_changes_nothing(ours: Expulsions, tmp_path: Path, forged: SignedExpulsion) -> None:
    with pytest.raises(ProtocolError, match="no issuer of this ring has signed"):
        ours.learn([entry(5), forged], VERIFY)
    assert ours.document() == b"[]"
    assert not (tmp_path / STORED).exists()


def test_lists_that_meet_in_any_order_are_equal(tmp_path: Path) -> None:
    made = []
    for number, order in enumerate(itertools.permutations([entry(1), entry(2), entry(3, ISSUER)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = Expulsions(folder)
        for each in order:
            found.learn([each], VERIFY)
        made.append(found.digest)
    assert len(set(made)) == 1


def test_a_document_tells_what_is_new(ours: Expulsions, tmp_path: Path) -> None:
    ours.learn([entry(1), entry(2)], VERIFY)
    folder = tmp_path / "other"
    folder.mkdir()
    other = Expulsions(folder)
    other.learn([entry(2)], VERIFY)
    assert [found.expulsion.name for found in other.unknown(ours.document())] == ["peer-1"]
    assert [found.expulsion.name for found in other.unknown(ours.document([Id(1), Id(9)]))] == ["peer-1"]
    assert ours.unknown(other.document()) == []


@pytest.mark.parametrize("document", [b"", b"{}", b"[1]", b'[{"expulsion":{"id":"x"}}]', b"[" * 5000])
def test_an_unreadable_document_is_no_list(ours: Expulsions, document: bytes) -> None:
    with pytest.raises(ProtocolError, match="unreadable list"):
        ours.unknown(document)


def test_the_list_is_bounded(ours: Expulsions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expulsions, "MAX_EXPELLED", 2)
    ours.learn([entry(1), entry(2)], VERIFY)
    assert ours.learn([entry(3)], VERIFY) == []
    assert Id(3) not in ours


def test_a_damaged_file_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / STORED).write_text("{")
    with pytest.raises(DataFolderError, match=r"is damaged \("):
        Expulsions(tmp_path)
