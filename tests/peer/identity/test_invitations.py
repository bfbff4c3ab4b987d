"""Invitations: a token is good once, for its time, also after restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.peer.errors import DataFolderError, PeerError
from ringmq.peer.identity.invitations import MAX_INVITATIONS, STORED, Invitations, NotAdmittedError

ONE, OTHER = b"key of one", b"key of another"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def invitations(tmp_path: Path, clock: Clock) -> Invitations:
    return Invitations(tmp_path, clock)


def test_a_token_admits_one_key(invitations: Invitations) -> None:
    secret = invitations.make("kitchen", 60.0)
    invitation = invitations.redeem(secret, ONE, may_issue=False)
    assert invitation.name == "kitchen"
    with pytest.raises(NotAdmittedError, match="used already"):
        invitations.redeem(secret, OTHER, may_issue=False)


def test_the_same_key_gets_the_same_place_again(invitations: Invitations) -> None:
    """Its first answer was lost on the way."""
    secret = invitations.make("", 60.0)
    first = invitations.redeem(secret, ONE, may_issue=True)
    again = invitations.redeem(secret, ONE, may_issue=False)
    assert (again.salt, again.issuer) == (first.salt, True)
    assert invitations.issuers == 1


def test_each_token_has_its_own_place(invitations: Invitations) -> None:
    secrets = [invitations.make("", 60.0) for _ in range(10)]
    places = {invitations.redeem(secret, ONE, may_issue=False).salt for secret in secrets}
    assert len(places) == 10


def test_a_token_expires(invitations: Invitations, clock: Clock) -> None:
    secret = invitations.make("", 60.0)
    clock.now += 60.0
    with pytest.raises(NotAdmittedError, match="has expired"):
        invitations.redeem(secret, ONE, may_issue=False)


def test_a_clock_that_went_back_ends_a_token(invitations: Invitations, clock: Clock) -> None:
    secret = invitations.make("", 60.0)
    clock.now = 0.0
    with pytest.raises(NotAdmittedError, match="has expired"):
        invitations.redeem(secret, ONE, may_issue=False)


def test_a_guessed_token_is_unknown(invitations: Invitations) -> None:
    invitations.make("", 60.0)
    for guess in (b"", bytes(16), b"longer than any secret"):
        with pytest.raises(NotAdmittedError, match="unknown"):
            invitations.redeem(guess, ONE, may_issue=False)


def test_tokens_survive_a_restart_used_or_not(invitations: Invitations, tmp_path: Path, clock: Clock) -> None:
    used, fresh = (invitations.make("", 60.0) for _ in range(2))
    invitations.redeem(used, ONE, may_issue=False)
    again = Invitations(tmp_path, clock)
    with pytest.raises(NotAdmittedError, match="used already"):
        again.redeem(used, OTHER, may_issue=False)
    again.redeem(fresh, OTHER, may_issue=False)


def test_the_file_holds_no_secret_and_is_for_its_user_alone(invitations: Invitations, tmp_path: Path) -> None:
    secret = invitations.make("", 60.0)
    file = tmp_path / STORED
    assert secret.hex() not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_invitations_are_bounded_and_forgotten_when_they_are_over(
    invitations: Invitations, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "_write", lambda: None)
    for _ in range(MAX_INVITATIONS):
        invitations.make("", 60.0)
    with pytest.raises(PeerError, match=f"{MAX_INVITATIONS} invitations"):
        invitations.make("", 60.0)
    clock.now += 60.0
    assert invitations.make("", 60.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"invitations":[{}]}', '{"unknown":1}'])
def test_a_damaged_file_is_refused_with_one_line(tmp_path: Path, clock: Clock, text: str) -> None:
    (tmp_path / STORED).write_text(text)
    with pytest.raises(DataFolderError, match=r"is damaged \("):
        Invitations(tmp_path, clock)
