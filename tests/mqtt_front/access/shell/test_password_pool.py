"""Who waits for a verification of a password, and who does not."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.access.shell import password_pool
from ringmq.mqtt_front.access.shell.password_pool import PasswordPool
from ringmq.mqtt_front.codec.reasons import Reason


class SlowAccess(Access):
    """Verifies once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = Event()
        self.verified: list[str] = []

    def authenticate(self, user_name: str | None, password: bytes | None, client_id: str, anonymous: bool) -> Decision:
        assert self.may.wait(10)
        if password is None:
            raise ValueError("no password")
        self.verified.append(client_id)
        return Decision(Reason.SUCCESS, ALL_RIGHTS, client_id)


class Line:
    """A pool, and the queue of its answers."""

    def __init__(self) -> None:
        self.access = SlowAccess()
        self.pool = PasswordPool(self.access)
        self.answers: asyncio.Queue[asyncio.Future[Decision | None]] = asyncio.Queue()

    def begin(self, client_id: str, password: bytes | None = b"p", wanted: bool = True) -> None:
        self.pool.verify(("anna", password, client_id, False), lambda: wanted, self.answers.put_nowait)

    async def next(self) -> asyncio.Future[Decision | None]:
        return await asyncio.wait_for(self.answers.get(), 10)


async def test_decision_is_delivered_later() -> None:
    line = Line()
    line.begin("c")
    assert line.answers.empty()
    line.access.may.set()
    decision = (await line.next()).result()
    assert decision is not None
    assert decision.client_id == "c"
    line.pool.stop()


async def test_password_of_a_client_that_has_gone_is_not_verified() -> None:
    line = Line()
    line.access.may.set()
    line.begin("c", wanted=False)
    assert (await line.next()).result() is None
    assert line.access.verified == []
    line.pool.stop()


async def test_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_pool, "MAX_WAITING", 3)
    line = Line()
    for number in range(3):
        assert not line.pool.full
        line.begin(str(number))
    assert line.pool.full
    line.access.may.set()
    for _ in range(3):
        await line.next()
    assert not line.pool.full
    line.pool.stop()


async def test_failed_verification_is_reported_and_leaves_the_queue() -> None:
    line = Line()
    line.access.may.set()
    line.begin("c", password=None)
    assert isinstance((await line.next()).exception(), ValueError)
    line.pool.stop()


async def test_stop_cancels_queued_verifications() -> None:
    line = Line()
    for number in range(5):
        line.begin(str(number))
    line.pool.stop()
    line.access.may.set()
    ends = [await line.next() for _ in range(5)]
    assert sum(end.cancelled() for end in ends) >= 3
    PasswordPool(line.access).stop()
