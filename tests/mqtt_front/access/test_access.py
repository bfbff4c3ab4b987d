"""Admission and rights; that nothing unproven counts; effects of a reload."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS
from ringmq.mqtt_front.access.passwords import Cost, Passwords, new_entry
from ringmq.mqtt_front.access.rule_lines import RuleFileError
from ringmq.mqtt_front.codec.reasons import CONNACK_3, Reason
from tests.mqtt_front.access.accesses import access_from

CHEAP = Cost(11, 8, 1)
ALICE = new_entry("alice", b"secret", b"a" * 16, CHEAP).line
BOB = new_entry("bob", b"hidden", b"b" * 16, CHEAP).line
PASSWORDS = f"{ALICE}\n{BOB}\n"
ACL = "topic read public\nuser alice\ntopic alices/#\npattern write up/%u/%c\n"

OPEN, CLOSED = True, False
"""Listeners that let anonymous clients in, and that do not."""
OK, BAD, NO = Reason.SUCCESS, Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED


@pytest.mark.parametrize(
    ("passwords", "user_name", "password", "listener", "reason", "proven"),
    [
        (PASSWORDS, "alice", b"secret", CLOSED, OK, "alice"),
        (PASSWORDS, "alice", b"secret", OPEN, OK, "alice"),
        (PASSWORDS, "alice", b"hidden", CLOSED, BAD, None),
        (PASSWORDS, "alice", b"hidden", OPEN, BAD, None),
        (PASSWORDS, "alice", b"", OPEN, BAD, None),
        (PASSWORDS, "alice", None, OPEN, BAD, None),
        (PASSWORDS, "nobody", b"secret", OPEN, BAD, None),
        (PASSWORDS, "nobody", None, OPEN, BAD, None),
        (PASSWORDS, "", b"secret", OPEN, BAD, None),
        (PASSWORDS, None, None, OPEN, OK, None),
        (PASSWORDS, None, b"secret", OPEN, OK, None),
        (PASSWORDS, None, None, CLOSED, NO, None),
        (PASSWORDS, None, b"secret", CLOSED, NO, None),
        ("", "alice", b"secret", OPEN, BAD, None),
        ("", None, None, OPEN, OK, None),
        (None, "alice", b"secret", OPEN, OK, None),
        (None, None, None, OPEN, OK, None),
        (None, "alice", b"secret", CLOSED, NO, None),
        (None, None, None, CLOSED, NO, None),
    ],
)
def test_admission_by_password_and_anonymity(
    passwords: str | None,
    user_name: str | None,
    password: bytes | None,
    listener: bool,
    reason: Reason,
    proven: str | None,
) -> None:
    for acl in (None, ACL):
        decision = access_from(passwords, acl).authenticate(user_name, password, "c1", listener)
        assert (decision.reason, decision.user_name, decision.client_id) == (reason, proven, "c1")
        assert decision.reason in CONNACK_3
        assert (decision.rights is ALL_RIGHTS) == (reason is OK and acl is None)
        assert (decision.rights is NO_RIGHTS) == (reason is not OK)
        assert decision.rights.may_read("alices/x") == (reason is OK and (acl is None or proven == "alice"))


def test_without_files_the_listener_decides() -> None:
    assert Access().authenticate("anybody", b"x", "c", OPEN).rights is ALL_RIGHTS
    assert Access().authenticate(None, None, "c", CLOSED).reason is NO


def test_rights_are_the_users() -> None:
    access = access_from(PASSWORDS, ACL)
    alice = access.authenticate("alice", b"secret", "c1", OPEN).rights
    bob = access.authenticate("bob", b"hidden", "c2", OPEN).rights
    nobody = access.authenticate(None, None, "c3", OPEN).rights
    for rights, allowed in ((alice, "up/alice/c1"), (bob, "up/bob/c2")):
        for topic in ("up/alice/c1", "up/bob/c2", "up/bob/c1", "up/alice/c2", "up//c3"):
            assert rights.may_write(topic) == (topic == allowed)
            assert not nobody.may_write(topic)
    assert [rights.may_subscribe("alices/#") for rights in (alice, bob, nobody)] == [True, False, False]
    assert [rights.may_subscribe("public") for rights in (alice, bob, nobody)] == [False, False, True]


def test_a_name_without_proof_gives_no_users_rights() -> None:
    """With an ACL file but no password file anybody could say to be alice."""
    rights = access_from(None, ACL).authenticate("alice", b"secret", "c1", OPEN).rights
    assert not rights.may_read("alices/x")
    assert not rights.may_write("up/alice/c1")
    assert rights.may_read("public")


def test_only_a_verification_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    access = access_from(PASSWORDS, ACL, memory_key=b"k" * 32)
    assert access.at_once("alice", b"secret", "c1", OPEN) is None
    assert access.at_once("nobody", b"secret", "c1", OPEN) is None
    admitted = access.authenticate("alice", b"secret", "c1", OPEN)

    def never(cost: Cost, password: bytes, salt: bytes) -> bytes:
        raise AssertionError("a verification")

    monkeypatch.setattr(Cost, "derive", never)
    assert access.at_once("alice", b"secret", "c1", CLOSED) == admitted
    assert access.authenticate("alice", b"secret", "c1", CLOSED) == admitted
    assert access.at_once("alice", b"wrong", "c1", OPEN) is None
    for user_name, password, reason in ((None, None, OK), ("alice", None, BAD)):
        decision = access.at_once(user_name, password, "c1", OPEN)
        assert decision is not None
        assert decision.reason is reason
    access.reload(PASSWORDS, ACL)
    assert access.at_once("alice", b"secret", "c1", OPEN) is None, "a reload forgets"


def admitted(access: Access, user_name: str | None, password: bytes | None) -> Decision:
    decision = access.authenticate(user_name, password, "c1", OPEN)
    assert decision.reason is OK
    return decision


def test_a_reload_holds_for_clients_that_are_connected() -> None:
    access = access_from(PASSWORDS, ACL)
    alice, bob, nobody = (admitted(access, *who) for who in (("alice", b"secret"), ("bob", b"hidden"), (None, None)))
    assert access.renew(alice) == alice

    access.reload(PASSWORDS, "topic read other\nuser bob\ntopic bobs/#")
    renewed = [access.renew(old) for old in (alice, bob, nobody)]
    assert [decision.reason for decision in renewed] == [OK, OK, OK]
    assert [decision.rights.may_read("alices/x") for decision in renewed] == [False, False, False]
    assert [decision.rights.may_read("bobs/x") for decision in renewed] == [False, True, False]
    assert [decision.rights.may_read("other") for decision in renewed] == [False, False, True]

    access.reload(BOB, None)
    renewed = [access.renew(old) for old in (alice, bob, nobody)]
    assert [decision.reason for decision in renewed] == [NO, OK, OK]
    assert [decision.rights for decision in renewed] == [NO_RIGHTS, ALL_RIGHTS, ALL_RIGHTS]


def test_new_password_disconnects_clients_with_the_old_password() -> None:
    access = access_from(PASSWORDS, None, memory_key=b"k" * 32)
    alice, bob = admitted(access, "alice", b"secret"), admitted(access, "bob", b"hidden")
    access.reload(f"{new_entry('alice', b'fresh', b'c' * 16, CHEAP).line}\n{BOB}", None)
    assert access.renew(alice).reason is NO
    assert access.renew(bob).reason is OK
    assert access.authenticate("alice", b"secret", "c1", OPEN).reason is BAD
    assert access.authenticate("alice", b"fresh", "c1", OPEN).reason is OK
    access.reload(None, None)
    assert access.renew(bob).reason is NO, "nothing proves it any more"


@pytest.mark.parametrize("step", ["recall", "check"])
def test_a_reload_while_a_password_is_verified(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The decision is by the old rules as a whole, and `renew` brings it to the new ones."""
    access = access_from(PASSWORDS, ACL)
    real = getattr(Passwords, step)

    def during(passwords: Passwords, user_name: str, password: bytes) -> object:
        access.reload("", None)
        return real(passwords, user_name, password)

    monkeypatch.setattr(Passwords, step, during)
    decision = access.authenticate("alice", b"secret", "c1", OPEN)
    assert decision.reason is OK
    assert decision.rights.may_read("alices/x")
    assert not decision.rights.may_read("public"), "not the rights of the new rules, where all is allowed"
    assert access.renew(decision).reason is NO


def test_a_refusal_stays_one() -> None:
    access = access_from(PASSWORDS, ACL)
    refused = access.authenticate("alice", b"wrong", "c1", CLOSED)
    access.reload(None, None)
    assert access.renew(refused) == refused


@pytest.mark.parametrize(
    ("passwords", "acl", "says"),
    [
        (f"{ALICE}\nbob:hunter2", "", "pw.txt:2: the password of 'bob' is not hashed"),
        (PASSWORDS, "user x\n\ntopic a#b", "acl.txt:3: topic filter 'a#b' has a wildcard"),
        ("?", "?", "pw.txt:1: "),
    ],
)
def test_a_broken_file_keeps_all_old_rules(passwords: str, acl: str, says: str) -> None:
    access = access_from(PASSWORDS, ACL, password_file="pw.txt", acl_file="acl.txt")
    alice = admitted(access, "alice", b"secret")
    with pytest.raises(RuleFileError) as caught:
        access.reload(passwords, acl)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
    assert access.renew(alice) == alice
    assert access.renew(alice).rights is alice.rights
    assert admitted(access, "bob", b"hidden").rights.may_write("up/bob/c1")
    with pytest.raises(RuleFileError, match="txt:"):
        access_from(passwords, acl, password_file="pw.txt", acl_file="acl.txt")
