"""The feed of events: one question for all readers, none without readers, and none that waits for a slow one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from ringmq.peer.administration.requests import Request, Subject
from ringmq.peer.administration.rights import Asker
from ringmq.peer.web import feed as feed_module
from ringmq.peer.web.exchanges import RefusedError, Response
from ringmq.peer.web.feed import MAX_READERS, Feed


class Reader:
    """The exchange of one reader."""

    host = "here"

    def __init__(self) -> None:
        self.sent = b""
        self.slow = False
        self.leave: Callable[[], None]

    def respond(self, response: Response) -> None:
        raise AssertionError("a stream is no response")

    def stream(self, headers: tuple[str, ...], ended: Callable[[], None]) -> Callable[[bytes], bool]:
        self.leave = ended
        return self._send

    def _send(self, data: bytes) -> bool:
        if self.slow:
            return False
        self.sent += data
        return True

    @property
    def events(self) -> list[object]:
        return [json.loads(event.removeprefix("data: ")) for event in self.sent.decode().split("\n\n") if event]


class Asked:
    """A desk that answers when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[bytes], None]] = []
        self.count = 0

    def ask(self, request: Request, asker: Asker, done: Callable[[bytes], None]) -> None:
        assert (request.about, asker) == (Subject.PEERS, Asker.READER)
        self.count += 1
        self.waiting.append(done)

    def answer(self, reply: bytes) -> None:
        self.waiting.pop()(reply)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(feed_module, "PERIOD_S", 0.02)
    return Asked()


async def test_all_readers_share_one_question(asked: Asked) -> None:
    feed = Feed(asked.ask, lambda: "ab12")
    first, second = Reader(), Reader()
    feed.join(first)
    feed.join(second)
    assert asked.count == 1
    asked.answer(b'{"rows":[1]}')
    assert first.events == second.events == [{"me": "ab12"}, {"rows": [1]}]
    third = Reader()
    feed.join(third)
    assert third.events == [{"me": "ab12"}, {"rows": [1]}], "it need not wait"
    await until(lambda: asked.count == 2)
    feed.close()


async def test_nobody_is_asked_again_while_an_answer_is_due_or_nobody_reads(asked: Asked) -> None:
    feed = Feed(asked.ask, lambda: "ab12")
    reader = Reader()
    feed.join(reader)
    looked = feed._timer
    await until(lambda: feed._timer is not looked)
    assert asked.count == 1
    asked.answer(b"{}")
    reader.leave()
    await until(lambda: feed._timer is None)
    assert asked.count == 1
    feed.join(Reader())
    assert asked.count == 2, "the first reader begins again"
    feed.close()


async def test_a_slow_reader_is_left_behind(asked: Asked) -> None:
    feed = Feed(asked.ask, lambda: "ab12")
    slow, quick = Reader(), Reader()
    feed.join(slow)
    feed.join(quick)
    slow.slow = True
    asked.answer(b"{}")
    assert len(quick.events) == 2
    slow.leave()
    await until(lambda: asked.count == 2)
    asked.answer(b"{}")
    assert len(quick.events) == 3
    feed.close()


async def test_readers_are_bounded(asked: Asked) -> None:
    feed = Feed(asked.ask, lambda: "ab12")
    readers = [Reader() for _ in range(MAX_READERS)]
    for reader in readers:
        feed.join(reader)
    with pytest.raises(RefusedError, match=r"^there are 64 readers of events already$"):
        feed.join(Reader())
    readers[0].leave()
    feed.join(Reader())
    feed.close()
