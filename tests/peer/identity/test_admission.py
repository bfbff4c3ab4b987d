"""The newcomer's side of an admission: it says its secret to the inviter alone, and survives any answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.table import LinkTable
from ringmq.peer.identity.admission import Admission, JoinRequest, request_admission
from ringmq.peer.identity.invitations import NotAdmittedError
from ringmq.peer.iteration import Iteration
from ringmq.peer.settings.tokens import Token, fingerprint_of
from tests.identities import Authority, Certified
from tests.overlay.conftest import Recorder

WISH = JoinRequest("ringmq", "00" * 16, "", "guest")


class Inviter(Certified):
    """Answers each JOIN with `answer`."""

    answer = b""
    asked = 0

    async def admit(self, request: bytes, host: str) -> bytes:
        self.asked += 1
        return self.answer


@pytest.fixture
async def inviter(tmp_path: Path):
    made = Authority(tmp_path).certified()
    made.__class__ = Inviter
    config = OverlayConfig(id=made.id, boot=1, listen=("127.0.0.1", 0), credentials=made)
    links = LinkTable(config, Recorder(), Incidents(), Iteration())
    port = await links.bind()
    await links.serve(links.me)
    made.token = Token(fingerprint_of(made.public_key), bytes(16), ("127.0.0.1", port))
    yield made
    await links.close()


async def test_the_answer_of_the_inviter_is_taken(inviter) -> None:
    inviter.answer = msgspec.json.encode(Admission(certificate="certificate", root="root"))
    assert await request_admission(inviter.token, WISH) == Admission(certificate="certificate", root="root")


async def test_a_refusal_names_the_inviter_and_the_reason(inviter) -> None:
    inviter.answer = msgspec.json.encode(Admission(refused="the token\nwas used"))
    with pytest.raises(NotAdmittedError, match=r"join: 127.0.0.1:\d+ refuses: the token\?was used"):
        await request_admission(inviter.token, WISH)


async def test_nothing_is_said_to_another_peer_than_the_inviter(inviter) -> None:
    token = Token(bytes(16), *(inviter.token.secret, inviter.token.address))
    with pytest.raises(NotAdmittedError, match="not the one that printed the token"):
        await request_admission(token, WISH)
    assert not inviter.asked


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"certificate": 1}', b"[" * 60000])
async def test_an_unreadable_answer_is_one_line(inviter, answer: bytes) -> None:
    inviter.answer = answer
    with pytest.raises(OverlayError, match="no readable admission"):
        await request_admission(inviter.token, WISH)
