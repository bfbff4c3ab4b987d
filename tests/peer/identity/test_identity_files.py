"""The identity in a data folder: complete or not, readable or refused with one line."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity import certifying
from ringmq.peer.identity.identity_files import IdentityFiles
from tests.identities import Authority


@pytest.fixture
def files(tmp_path: Path) -> IdentityFiles:
    return Authority(tmp_path).certified("kitchen").files


def test_an_empty_folder_has_no_identity(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path)
    assert (files.complete, files.key(), files.issuer(), files.root()) == (False, None, None, b"")


def test_a_folder_of_another_user_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(DataFolderError, match=r"cannot use .*: Permission denied: run this as the user of the peer"):
        _ = IdentityFiles(tmp_path).complete


def test_a_key_alone_is_no_identity_yet(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path)
    files.save_key(certifying.new_key())
    assert not files.complete
    assert files.key() is not None


def test_keys_are_for_their_user_alone(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path)
    files.save_key(b"key")
    files.save(b"certificate", b"root", (b"key", b"certificate"))
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in files.folder.iterdir() if file.stat().st_mode & 0o077} == {
        "peer.pem",
        "ring.pem",
        "issuer.pem",
    }
    assert files.issuer() == (b"key", b"certificate")


def test_what_is_loaded_proves_the_peer(files: IdentityFiles) -> None:
    identity = files.load()
    assert identity.proof.name == "kitchen"
    key = files.key()
    assert key is not None
    assert identity.public_key == certifying.public_part(key)
    assert identity.server.verify_mode is ssl.CERT_OPTIONAL
    assert identity.client.verify_mode is ssl.CERT_REQUIRED
    assert {identity.server.minimum_version, identity.client.minimum_version} == {ssl.TLSVersion.TLSv1_3}


@pytest.mark.parametrize("name", ["peer.pem", "ring.pem", "peer.key"])
@pytest.mark.parametrize("content", [b"", b"garbage", None, b"\xff\xfe"])
def test_a_damaged_identity_is_refused_with_one_line(files: IdentityFiles, name: str, content: bytes | None) -> None:
    file = files.folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(DataFolderError) as error:
        files.load()
    assert str(error.value).startswith(f"data: {files.folder} is damaged (")
    assert "join again with a new token" in str(error.value)


def test_the_key_of_another_peer_is_refused(files: IdentityFiles) -> None:
    files.save_key(certifying.new_key())
    with pytest.raises(DataFolderError, match="is damaged"):
        files.load()


def test_a_certificate_without_an_id_is_refused(files: IdentityFiles) -> None:
    stranger = certifying.found("other")
    files.save_key(stranger.key)
    files.save(stranger.certificate, stranger.certificate, None)
    with pytest.raises(DataFolderError, match="it proves no id"):
        files.load()
