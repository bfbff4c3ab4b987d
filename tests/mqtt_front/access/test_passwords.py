"""Password files: only scrypt within bounds is read, nothing secret is shown, nobody learns who has an account."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.access.passwords import COST, SALT_BYTES, Cost, Entry, Passwords, new_entry, verify
from ringmq.mqtt_front.access.rule_lines import RuleFileError

CHEAP = Cost(11, 8, 1)
"""The least that is allowed: tests need not wait."""
DEAR = Cost(12, 8, 1)


def entry(user_name: str, password: bytes, cost: Cost = CHEAP) -> Entry:
    return new_entry(user_name, password, hashlib.sha256(user_name.encode()).digest()[:SALT_BYTES], cost)


ALICE = entry("alice", b"secret")
BOB = entry("bob", b"hidden", DEAR)


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> list[Cost]:
    """The costs of the verifications made."""
    made: list[Cost] = []
    real = Cost.derive

    def derive(cost: Cost, password: bytes, salt: bytes) -> bytes:
        made.append(cost)
        return real(cost, password, salt)

    monkeypatch.setattr(Cost, "derive", derive)
    return made


def test_a_known_hash() -> None:
    """As others compute it (RFC 7914 §12 has no vector with our lengths), so that lines can be exchanged."""
    key = hashlib.scrypt(b"secret", salt=ALICE.salt, n=2048, r=8, p=1, dklen=32)
    assert ALICE.key == key
    assert ALICE.line.startswith("alice:$scrypt$ln=11,r=8,p=1$")


def test_a_line_of_another_tool() -> None:
    """By npm's @phc/scrypt, from its README: the password is `password`."""
    line = "x:$scrypt$ln=15,r=8,p=1$D/EEcdfcBkj4DQB3zlfsFQ$v9Xsag5AySIY78DFKslBzeRXCUfsLKCZ0Xm4Xwoh+J0"
    found = Passwords.parse(line).entry("x")
    assert found is not None
    assert (found.cost, found.line) == (Cost(15, 8, 1), line)
    assert verify(found, b"password")


@given(st.binary(max_size=64), st.binary(max_size=64), st.binary(min_size=SALT_BYTES, max_size=SALT_BYTES))
@settings(max_examples=20, deadline=None)
def test_only_the_password_verifies(password: bytes, other: bytes, salt: bytes) -> None:
    made = new_entry("a", password, salt, CHEAP)
    assert verify(made, password)
    assert verify(made, other) == (other.rstrip(b"\0") == password.rstrip(b"\0")), "scrypt pads with zero bytes"
    assert Passwords.parse(made.line).entry("a") == made


def test_the_salt_matters() -> None:
    assert new_entry("a", b"x", bytes(16), CHEAP).key != new_entry("a", b"x", bytes(15) + b"\1", CHEAP).key


def test_new_entries_are_dear_enough() -> None:
    """43 ms of a core where CHEAP takes 2.7 ms; the memory that Percival's paper takes for logins."""
    assert COST.memory_bytes == 16 << 20
    assert COST.memory_bytes * COST.p >= 16 * CHEAP.memory_bytes * CHEAP.p


@pytest.mark.parametrize(
    ("name", "salt"), [("a:b", bytes(16)), ("", bytes(16)), ("a\nb:c", bytes(16)), ("a", b"short")]
)
def test_invalid_entries_are_refused(name: str, salt: bytes) -> None:
    with pytest.raises(ValueError, match=r"user name|salt"):
        new_entry(name, b"x", salt, CHEAP)


def test_an_entry_shows_no_hash() -> None:
    assert repr(ALICE.key) not in repr(ALICE)
    assert repr(ALICE.salt) not in repr(ALICE)


def test_a_file() -> None:
    found = Passwords.parse(f"# ours\n\n{ALICE.line}\r\n{BOB.line}")
    assert (found.entry("alice"), found.entry("bob"), found.entry("eve"), len(found)) == (ALICE, BOB, None, 2)
    assert found.check("alice", b"secret") == ALICE
    assert found.check("bob", b"hidden") == BOB
    assert found.check("alice", b"hidden") is None
    assert found.check("alice", b"") is None


SALT, KEY = ALICE.line.split("$")[3:]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hunter2", "USER:HASH"),
        ("alice:hunter2", "not hashed by scrypt"),
        ("alice:", "not hashed by scrypt"),
        ("alice:$6$hunter2$hunter2", "not hashed by scrypt"),
        ("alice:$7$101$hunter2$hunter2", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=11,r=8,p=1${SALT}${KEY}hunter2", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=11,r=8,p=1${SALT}${KEY} hunter2", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=11,r=8,p=1${SALT[:-2]}${KEY}", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=11,r=8,p=1${SALT}$", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=011,r=8,p=1${SALT}${KEY}", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=-1,r=8,p=1${SALT}${KEY}", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=١١,r=8,p=1${SALT}${KEY}", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=999999999,r=8,p=1${SALT}${KEY}", "not hashed by scrypt"),
        (f"alice:$scrypt$ln=11,r=8,p=1${SALT[:-1]}B${KEY}", "damaged"),
        (f"alice:$scrypt$ln=99,r=8,p=1${SALT}${KEY}", "out of range"),
        (f"alice:$scrypt$ln=11,r=99,p=1${SALT}${KEY}", "out of range"),
        (f"alice:$scrypt$ln=16,r=1,p=1${SALT}${KEY}", "out of range"),
        (f"alice:$scrypt$ln=17,r=8,p=1${SALT}${KEY}", "2 to 64 MiB"),
        (f"alice:$scrypt$ln=10,r=8,p=1${SALT}${KEY}", "2 to 64 MiB"),
        (f"alice:$scrypt$ln=1,r=8,p=64${SALT}${KEY}", "2 to 64 MiB"),
        (f"alice:$scrypt$ln=16,r=8,p=5${SALT}${KEY}", "too much work"),
        (f":$scrypt$ln=11,r=8,p=1${SALT}${KEY}", "a user name must have 1 to 256 characters, got 0"),
        (f"a\x07:$scrypt$ln=11,r=8,p=1${SALT}${KEY}", "control"),
        (f"bob:$scrypt$ln=11,r=8,p=1${SALT}${KEY}", "duplicate user 'bob'"),
    ],
)
def test_a_bad_line_is_one_clear_error_without_the_password(line: str, says: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        Passwords.parse(f"\n{BOB.line}\n{line}\n", "pw.txt")
    assert str(caught.value).startswith("pw.txt:3: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__cause__)


@given(st.integers(-1, 40), st.integers(-1, 99), st.integers(-1, 99))
@settings(max_examples=300)
def test_no_parameters_eat_the_memory(log_n: int, r: int, p: int) -> None:
    try:
        cost = Cost(log_n, r, p)
    except ValueError:
        return
    assert 2 << 20 <= cost.memory_bytes <= 64 << 20
    assert cost.memory_bytes * p <= 256 << 20


@pytest.mark.parametrize("cost", [CHEAP, Cost(16, 8, 4), Cost(15, 1, 64), Cost(18, 2, 1), Cost(8, 64, 64)])
def test_openssl_accepts_all_costs_within_the_bounds(cost: Cost) -> None:
    assert len(cost.derive(b"x", bytes(16))) == 32


@given(st.text(alphabet="al:$scrypt=n,r8p1A#\n\r \0é", max_size=80))
def test_garbage_gives_only_the_one_error(text: str) -> None:
    with contextlib.suppress(RuleFileError):
        assert len(Passwords.parse(text)) == 0


def test_the_comparison_takes_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr("ringmq.mqtt_front.access.passwords.hmac.compare_digest", compare)
    assert verify(ALICE, b"secret")
    assert compared == [(ALICE.key, ALICE.key)]


def test_unknown_user_costs_as_much_as_a_known_user(paid: list[Cost]) -> None:
    found = Passwords({"alice": ALICE})
    assert found.check("alice", b"wrong") is None
    assert found.check("nobody", b"wrong") is None
    assert paid == [CHEAP, CHEAP]


def test_an_unknown_user_is_nobody_even_with_a_users_password() -> None:
    found = Passwords({"alice": ALICE})
    assert found.check("nobody", b"secret") is None


def test_different_costs_do_not_reveal_unknown_users(paid: list[Cost]) -> None:
    """The same name always costs the same, some names cost the one and some the other."""
    found = Passwords({"alice": ALICE, "bob": BOB})
    for _ in range(2):
        for name in range(16):
            assert found.check(f"nobody-{name}", b"x") is None
    assert paid[:16] == paid[16:]
    assert set(paid) == {CHEAP, DEAR}


def test_without_users_there_is_nothing_to_hide(paid: list[Cost]) -> None:
    assert Passwords({}).check("nobody", b"x") is None
    assert paid == []


def test_a_right_password_is_remembered_and_a_wrong_one_is_not(paid: list[Cost]) -> None:
    found = Passwords({"alice": ALICE, "bob": BOB}, memory_key=b"k" * 32)
    assert found.recall("alice", b"secret") is None, "it was not seen yet"
    assert found.check("alice", b"wrong") is None
    assert found.recall("alice", b"wrong") is None
    assert found.recall("alice", b"secret") is None
    assert found.check("alice", b"secret") == ALICE
    del paid[:]
    assert found.recall("alice", b"secret") == ALICE
    assert found.recall("alice", b"secretx") is None
    assert found.recall("bob", b"secret") is None
    assert found.recall("nobody", b"secret") is None
    assert paid == []


def test_remembered_password_is_keyed_and_differs_by_user() -> None:
    def remembered(key: bytes) -> Any:
        twin = entry("twin", b"secret")
        found = Passwords({"alice": ALICE, "twin": twin}, memory_key=key)
        assert found.check("alice", b"secret")
        assert found.check("twin", b"secret")
        return found._remembered

    first, second = remembered(b"1" * 32), remembered(b"2" * 32)
    assert first["alice"] != first["twin"]
    assert first["alice"] != second["alice"]
    assert b"secret" not in b"".join(first.values())


def test_without_a_key_nothing_is_remembered() -> None:
    found = Passwords({"alice": ALICE})
    assert found.check("alice", b"secret") == ALICE
    assert found.recall("alice", b"secret") is None


def test_other_threads_run_while_a_password_is_verified() -> None:
    """If the interpreter's lock were held, the counter could not move between the two looks at it."""
    slow = new_entry("a", b"x", bytes(16), Cost(16, 8, 2))
    count, moved = 0, []
    done = threading.Event()

    def verifier() -> None:
        for _ in range(3):
            before = count
            verify(slow, b"x")
            moved.append(count - before)
        done.set()

    thread = threading.Thread(target=verifier)
    thread.start()
    while not done.is_set():
        count += 1
    thread.join()
    assert max(moved) > 10_000


def test_several_threads_verify_at_a_time() -> None:
    found = Passwords({"alice": ALICE, "bob": BOB}, memory_key=b"k" * 32)
    results: list[Entry | None] = []

    def verifier() -> None:
        results.extend(found.check(*pair) for pair in [("alice", b"secret"), ("bob", b"hidden"), ("bob", b"secret")])

    threads = [threading.Thread(target=verifier) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count(ALICE) == results.count(BOB) == results.count(None) == 4
