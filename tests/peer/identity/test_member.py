"""A member admits newcomers with a token, and obeys its operator."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import msgspec
import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.links.proofs import Proof, read_proof
from ringmq.peer.identity import certifying
from ringmq.peer.identity.admission import Admission, JoinRequest
from ringmq.peer.identity.commands import Expel, Invite, Result
from ringmq.peer.identity.identity_files import IdentityFiles
from ringmq.peer.identity.member import RingMember
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token, fingerprint_of
from tests.identities import Authority

KEY = certifying.new_key()
PUBLIC = certifying.public_part(KEY)
AT = ("192.168.1.10", 4883)


class Inviter:
    """A member that may admit others, and its clock."""

    def __init__(self, folder: Path, issuers: int = 2) -> None:
        self.authority = Authority(folder)
        self.files = self.authority.certified("first").files
        issuer = self.authority.issuer
        own = (self.files.folder / "peer.pem").read_bytes()
        self.files.save(own, issuer.certificate, (issuer.key, issuer.certificate))
        self.now = 1000.0
        self.member = self.member_of(self.files, issuers)

    def member_of(self, files: IdentityFiles, issuers: int) -> RingMember:
        member = RingMember(files, lambda: self.now, PeerConfig(shadows=issuers, data=Path("data")))
        member.address = AT
        return member

    async def ask(self, token: Token, member: RingMember | None = None, **changes: object) -> Admission:
        wish = {"ring": "ringmq", "secret": token.secret.hex(), "public_key": PUBLIC.hex(), "name": "guest", **changes}
        answer = await (member or self.member).admit(msgspec.json.encode(wish), "192.168.1.11")
        return msgspec.json.decode(answer, type=Admission)


@pytest.fixture
def inviter(tmp_path: Path) -> Inviter:
    return Inviter(tmp_path)


def saved(admission: Admission, folder: Path, key: bytes = KEY) -> IdentityFiles:
    folder.mkdir()
    files = IdentityFiles(folder)
    files.save_key(key)
    right = (admission.issuer_key.encode(), admission.issuer_certificate.encode())
    files.save(admission.certificate.encode(), admission.root.encode(), right if right[0] else None)
    return files


async def test_a_newcomer_gets_a_certificate_that_works(inviter: Inviter, tmp_path: Path) -> None:
    token = await inviter.member.invite(Invite("kitchen"))
    assert token.address == AT
    assert token.fingerprint == fingerprint_of(certifying.public_part(inviter.files.key() or b""))
    admission = await inviter.ask(token)
    proof = saved(admission, tmp_path / "guest").load().proof
    assert (proof.name, proof.issuer) == ("kitchen", None)
    again = await inviter.ask(token)
    assert read_proof(ssl.PEM_cert_to_DER_cert(again.certificate)) == proof


async def test_without_a_name_in_the_token_the_newcomer_chooses(inviter: Inviter, tmp_path: Path) -> None:
    admission = await inviter.ask(await inviter.member.invite(Invite()), name="its host")
    assert saved(admission, tmp_path / "guest").load().proof.name == "its-host"


async def test_the_first_members_may_admit_others_and_no_more(inviter: Inviter, tmp_path: Path) -> None:
    rights = []
    for number in range(4):
        admission = await inviter.ask(await inviter.member.invite(Invite()))
        files = saved(admission, tmp_path / f"guest {number}")
        rights.append(files.issuer() is not None)
    assert rights == [True, True, False, False]


async def test_the_ring_goes_on_without_its_founder(inviter: Inviter, tmp_path: Path) -> None:
    first = saved(await inviter.ask(await inviter.member.invite(Invite())), tmp_path / "first")
    second = inviter.member_of(first, 2)
    admission = await inviter.ask(await second.invite(Invite("later")), second)
    later = saved(admission, tmp_path / "later")
    assert later.load().proof == (later.load().proof.id, "later", second.proof.id)
    assert later.issuer() is None, "only the founder's authority gives this right"
    third = inviter.member_of(later, 2)
    with pytest.raises(Exception, match="may not admit others"):
        await third.invite(Invite())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"secret": "00" * 16}, "unknown"),
        ({"secret": "xyz"}, "secret"),
        ({"ring": "other"}, "this is ring 'ringmq', and not 'other'"),
        ({"public_key": ""}, "."),
        ({"public_key": "00" * 44}, "."),
        ({"name": 7}, "name"),
    ],
)
async def test_a_wrong_wish_is_refused_and_leaves_the_token_good(
    inviter: Inviter, changes: dict[str, object], why: str
) -> None:
    token = await inviter.member.invite(Invite())
    refused = (await inviter.ask(token, **changes)).refused
    assert refused
    assert why == "." or why in refused
    assert (await inviter.ask(token)).certificate


async def test_a_token_is_refused_when_it_was_used_or_is_over(inviter: Inviter) -> None:
    used, over = await inviter.member.invite(Invite()), await inviter.member.invite(Invite(for_s=60.0))
    await inviter.ask(used)
    other = certifying.public_part(certifying.new_key()).hex()
    assert "used already" in (await inviter.ask(used, public_key=other)).refused
    inviter.now += 61.0
    assert "has expired" in (await inviter.ask(over)).refused


async def test_garbage_is_refused(inviter: Inviter) -> None:
    token = await inviter.member.invite(Invite())
    wish = JoinRequest("ringmq", token.secret.hex(), PUBLIC.hex(), "guest")
    good, chance = msgspec.json.encode(wish), random.Random(5)
    refused = 0
    for _ in range(500):
        changed = bytearray(good)
        for _ in range(chance.choice((1, 2, 10))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        answer = await inviter.member.admit(bytes(changed[: chance.randrange(len(changed) + 1)]), "host")
        refused += bool(msgspec.json.decode(answer, type=Admission).refused)
    assert refused > 450, "a changed name is a name"


async def obeyed(member: RingMember, command: object) -> Result:
    return msgspec.json.decode(await member.command(msgspec.json.encode(command)), type=Result)


async def test_the_operator_gets_the_command_for_the_next_machine(inviter: Inviter) -> None:
    result = await obeyed(inviter.member, Invite("kitchen"))
    assert result.text.startswith("ringmq peer --data data --join ringmq1-")
    assert not result.error


@pytest.mark.parametrize("command", [{}, {"type": "unknown"}, {"type": "invite", "for_s": -1}, Invite("two words")])
async def test_a_wrong_command_is_one_line(inviter: Inviter, command: object) -> None:
    result = await obeyed(inviter.member, command)
    assert result.error
    assert not result.text


async def test_an_issuer_expels_a_peer_by_its_name_or_id(inviter: Inviter, tmp_path: Path) -> None:
    changes: list[str] = []
    inviter.member.watch(lambda: changes.append("changed"))
    proofs = []
    for name in ("kitchen", "hall", "yard"):
        admission = await inviter.ask(await inviter.member.invite(Invite(name)))
        proofs.append(saved(admission, tmp_path / name).load().proof)
    for proof, who in zip(proofs, ("kitchen", proofs[1].id.short(), proofs[2].id.hex().upper()), strict=True):
        result = await obeyed(inviter.member, Expel(who))
        assert result.text == f"{proof.name} ({proof.id.hex()}) is expelled", result.error
        assert proof.id in inviter.member.expelled
    assert changes == ["changed"] * 3


async def test_what_an_issuer_expels_is_believed_by_others(inviter: Inviter, tmp_path: Path) -> None:
    first = saved(await inviter.ask(await inviter.member.invite(Invite("first"))), tmp_path / "first")
    issuer = inviter.member_of(first, 2)
    inviter.member.known = lambda: [Proof(Id(5), "bad", None)]
    issuer.known = inviter.member.known
    await obeyed(issuer, Expel("bad"))
    assert Id(5) not in inviter.member.expelled
    await inviter.member.learn(issuer.evidence(None))
    assert Id(5) in inviter.member.expelled
    assert inviter.member.expulsions == issuer.expulsions
    assert inviter.member.evidence(Proof(Id(6), "other", None)) == b"[]"


async def test_an_expelled_peer_must_end(inviter: Inviter, tmp_path: Path) -> None:
    ends: list[str] = []
    files = saved(await inviter.ask(await inviter.member.invite(Invite("second"))), tmp_path / "second")
    second = inviter.member_of(files, 2)
    third = saved(await inviter.ask(await second.invite(Invite("third")), second), tmp_path / "third")
    members = [second, inviter.member_of(third, 2)]
    await obeyed(inviter.member, Expel("second"))
    for member in members:
        member.on_expelled = lambda error: ends.append(str(error))
        await member.learn(inviter.member.evidence(None))
    assert ends[0].startswith("this peer was expelled from its ring at first: to come back, remove ")
    assert ends[1].startswith("the peer that admitted this one (second) was expelled")
    again = inviter.member_of(files, 2)
    again.on_expelled = lambda error: ends.append("again")
    again.check_own()
    assert ends[2:] == ["again"]


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("nobody", "nobody: no peer is known by it"),
        ("twin", "twin: several peers match: name one of 0"),
        ("0000000", "no peer is known by it"),
        ("first", "this is this peer itself"),
    ],
)
async def test_an_operator_must_name_one_other_peer(inviter: Inviter, who: str, fault: str) -> None:
    inviter.member.known = lambda: [Proof(Id(number), "twin", None) for number in (1, 2)]
    assert fault in (await obeyed(inviter.member, Expel(who))).error
    assert inviter.member.expulsions == b""


async def test_a_peer_that_is_no_issuer_expels_nobody(inviter: Inviter, tmp_path: Path) -> None:
    for number in range(3):
        files = saved(await inviter.ask(await inviter.member.invite(Invite())), tmp_path / f"guest {number}")
    member = inviter.member_of(files, 2)
    member.known = lambda: [Proof(Id(1), "victim", None)]
    assert "may not admit others" in (await obeyed(member, Expel("victim"))).error
