"""The seeds: asked again and again, and the decision to found a ring."""

import asyncio
import dataclasses

import pytest
from structlog.testing import capture_logs

from overlay.config import Address, OverlayConfig, show
from overlay.errors import OverlayError
from overlay.handshake import Hello
from overlay.ids import SPACE, Id
from overlay.messages import Peer
from overlay.notices import Notices
from overlay.questions import MyselfError
from overlay.seeds import Seeds
from overlay.timing import LOCAL

ME, ONE, OTHER = ("me", 1), ("one", 1), ("other", 1)
UNHURRIED = Id(SPACE // 2)
"""A peer with this id waits exactly as long as the constants say."""
LONG_S = 1000.0


def hello_of(number: int, *, active: bool = True) -> Hello:
    return Hello("ringmq", Peer(Id(number), "somewhere", 1, 1), active, None)


class Guest:
    """Notes what it is told; active once it founded, or met somebody active and `joins`."""

    def __init__(self, answers: dict[Address, Hello | Exception], *, joins: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._joins = joins
        self.answers = answers
        self.active = False
        self.asked: list[tuple[float, Address]] = []
        self.met: list[Hello] = []
        self.links: set[Id] = set()
        self.founded_at: list[float] = []

    async def introduce(self, address: Address) -> Hello:
        self.asked.append((self._loop.time(), address))
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def introduced(self, hello: Hello) -> None:
        self.met.append(hello)
        self.active = self.active or (self._joins and hello.active)

    def linked(self, peer: Id) -> bool:
        return peer in self.links

    def found(self) -> None:
        self.founded_at.append(self._loop.time())
        self.active = True

    def asked_at(self, address: Address) -> list[float]:
        return [when for when, asked in self.asked if asked == address]


def seeds_of(guest: Guest, *listed: Address, own: frozenset[Address] = frozenset(), point: Id = UNHURRIED) -> Seeds:
    timing = dataclasses.replace(LOCAL, join_s=1.0, reunion_s=1.0)
    config = OverlayConfig(id=point, boot=1, listen=("127.0.0.1", 0), timing=timing, seeds=listed)
    return Seeds(config, own, guest, Notices())


# -- who is asked, and when


def test_a_seed_that_fails_is_asked_again_with_longer_pauses_while_others_answer(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused"), OTHER: hello_of(2, active=False)})
        seeds = seeds_of(guest, ONE, OTHER)
        seeds.start()
        await loop.moment(16.0)
        expected = [0.0, 0.125, 0.375, 0.875, 1.875, 3.875, 7.875, 11.875, 15.875]
        assert guest.asked_at(ONE) == guest.asked_at(OTHER) == expected
        assert guest.met == [hello_of(2, active=False)] * len(expected)
        assert seeds._notices.counters["seeds_unreachable"] == len(expected)
        guest.answers[ONE] = hello_of(1)
        await loop.moment(19.9)
        assert guest.active
        await seeds.stop()

    virtually(story)


def test_a_seed_that_hangs_delays_no_other(virtually) -> None:
    class Slow(Guest):
        async def introduce(self, address: Address) -> Hello:
            if address == ONE:
                await self._loop.create_future()
            return await super().introduce(address)

    async def story(loop) -> None:
        guest = Slow({OTHER: hello_of(2)})
        seeds = seeds_of(guest, ONE, OTHER)
        seeds.start()
        await loop.moment(0.01)
        assert guest.met == [hello_of(2)]
        await seeds.stop()

    virtually(story)


def test_a_seed_is_met_again_every_6_reunion_s_unless_it_is_linked(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1)})
        seeds = seeds_of(guest, ONE)
        seeds.start()
        await loop.moment(13.0)
        assert guest.asked_at(ONE) == [0.0, 6.0, 12.0]
        guest.links.add(Id(1))
        await loop.moment(40.0)
        assert len(guest.asked) == 3
        guest.links.clear()
        await loop.moment(43.0)
        assert guest.asked_at(ONE)[3:] == [42.0]
        await seeds.stop()

    virtually(story)


def test_the_pauses_of_one_that_is_in_a_ring_do_not_grow(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused"), OTHER: hello_of(2)})
        seeds = seeds_of(guest, ONE, OTHER)
        seeds.start()
        await loop.moment(0.01)
        guest.links.add(Id(2))
        await loop.moment(60.0)
        # its first failure may come before the other's answer, and then its next try is a quick one
        pauses = [later - earlier for earlier, later in zip(guest.asked_at(ONE), guest.asked_at(ONE)[1:], strict=False)]
        assert set(pauses[1:]) == {6.0}
        assert len(pauses) >= 9
        assert guest.asked_at(OTHER) == [0.0]
        await seeds.stop()

    virtually(story)


def test_who_falls_out_of_the_ring_asks_quickly_again_even_the_linked(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1)}, joins=False)
        guest.active = True
        seeds = seeds_of(guest, ONE)
        seeds.start()
        await loop.moment(5.0)
        guest.active = False
        await loop.moment(6.5)
        guest.links.add(Id(1))
        await loop.moment(8.0)
        assert guest.asked_at(ONE) == [0.0, 6.0, 6.125, 6.375, 6.875, 7.875]
        await seeds.stop()

    virtually(story)


def test_peers_started_together_do_not_ask_together(virtually) -> None:
    async def story(loop) -> None:
        seconds = []
        for point in (Id(0), UNHURRIED, Id(SPACE - 1)):
            guest = Guest({ONE: OverlayError("refused")})
            seeds = seeds_of(guest, ONE, point=point)
            began = loop.time()
            seeds.start()
            await loop.moment(began + 0.2)
            seconds.append(guest.asked[1][0] - began)
            await seeds.stop()
        assert seconds == pytest.approx([0.75 / 8, 1 / 8, 1.25 / 8])

    virtually(story)


def test_the_own_address_and_repetitions_are_not_asked(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused")})
        seeds = seeds_of(guest, ONE, ME, ONE, own=frozenset({ME}))
        assert seeds.others == (ONE,)
        seeds.start()
        await loop.moment(0.1)
        assert guest.asked == [(0.0, ONE)]
        await seeds.stop()

    virtually(story)


def test_a_seed_that_turns_out_to_be_this_peer_is_not_asked_again(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused"), OTHER: MyselfError("that is me")})
        seeds = seeds_of(guest, ONE, OTHER)
        seeds.start()
        await loop.moment(LONG_S)
        assert guest.asked_at(OTHER) == [0.0]
        assert len(guest.asked_at(ONE)) > 100
        assert guest.founded_at == []
        await seeds.stop()

    virtually(story)


def test_what_the_guest_raises_is_counted_and_other_seeds_go_on(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: ZeroDivisionError("our own fault"), OTHER: hello_of(2, active=False)})
        seeds = seeds_of(guest, ONE, OTHER)
        with capture_logs() as lines:
            seeds.start()
            await loop.moment(1.0)
        assert seeds._notices.counters["seed_errors"] == 1
        assert [line["event"] for line in lines] == ["seed_errors"]
        assert len(guest.asked_at(OTHER)) == 4
        await seeds.stop()

    virtually(story)


def test_after_the_stop_nobody_is_asked(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused")})
        seeds = seeds_of(guest, ONE)
        seeds.start()
        await loop.moment(1.0)
        await seeds.stop()
        asked = len(guest.asked)
        await loop.moment(LONG_S)
        assert len(guest.asked) == asked == 4
        await seeds.stop()

    virtually(story)


# -- who founds


def test_with_nobody_to_ask_the_ring_is_founded_at_once(virtually) -> None:
    async def story(loop) -> None:
        for listed in ((), (ME,), (ME, ONE)):
            guest = Guest({})
            seeds = seeds_of(guest, *listed, own=frozenset({ME, ONE}))
            seeds.start()
            assert guest.founded_at == [loop.time()]
            assert guest.asked == []
            await seeds.stop()

    virtually(story)


@pytest.mark.parametrize(
    "answer", [OverlayError("refused"), hello_of(1, active=False)], ids=["nobody is there", "it is in no ring either"]
)
def test_the_first_of_the_list_founds_after_2_join_s(virtually, answer: Hello | Exception) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: answer})
        seeds = seeds_of(guest, ME, ONE, own=frozenset({ME}))
        seeds.start()
        await loop.moment(1.99)
        assert guest.founded_at == []
        await loop.moment(LONG_S)
        assert guest.founded_at == [2.0]
        await seeds.stop()

    virtually(story)


def test_nobody_else_founds(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused")})
        seeds = seeds_of(guest, ONE, ME, own=frozenset({ME}))
        seeds.start()
        await loop.moment(LONG_S)
        assert guest.founded_at == []
        await seeds.stop()

    virtually(story)


def test_the_first_that_knows_itself_only_by_asking_founds_too(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ME: MyselfError("that is me"), ONE: OverlayError("refused")})
        seeds = seeds_of(guest, ME, ONE)
        seeds.start()
        await loop.moment(LONG_S)
        assert guest.founded_at == [2.0]
        assert guest.asked_at(ME) == [0.0]
        await seeds.stop()

    virtually(story)


def test_the_first_does_not_found_while_a_ring_is_seen_and_not_long_after(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1)}, joins=False)
        seeds = seeds_of(guest, ME, ONE, own=frozenset({ME}))
        seeds.start()
        await loop.moment(100.0)
        assert guest.founded_at == []
        guest.answers[ONE] = OverlayError("gone")
        await loop.moment(LONG_S)
        last_seen = max(when for when in guest.asked_at(ONE) if when <= 100.0)
        assert len(guest.founded_at) == 1
        assert 8.0 <= guest.founded_at[0] - last_seen <= 10.0
        await seeds.stop()

    virtually(story)


def test_one_that_joined_does_not_found(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1)})
        seeds = seeds_of(guest, ME, ONE, own=frozenset({ME}))
        seeds.start()
        await loop.moment(LONG_S)
        assert guest.founded_at == []
        await seeds.stop()

    virtually(story)


# -- whole nodes


async def test_without_seeds_a_ring_is_founded(start) -> None:
    node = await start(1)
    await node.wait_active(1.0)
    assert node.ring.calls == [("found",)]
    assert node.address == ("127.0.0.1", node.ring.me.port)


async def test_a_seed_is_joined_then_met_again(start, until) -> None:
    first = await start(1)
    node = await start(2, seeds=(first.address,))
    await node.wait_active(10.0)
    assert node.ring.calls[0] == ("join", first.ring.me)
    await until(lambda: node.ring.named("meet"))
    assert node.ring.named("meet")[0] == ("meet", first.ring.me)
    assert first.ring.calls == [("found",)]


async def test_a_linked_seed_is_left_alone(start, until, quick) -> None:
    first = await start(1)
    node = await start(2, seeds=(first.address,))
    await node.wait_active(10.0)
    node.send(first.ring.me, b"x")
    await until(lambda: first.ring.named("receive"))
    met = len(node.ring.named("meet"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: loop.time() > began + 6 * 3 * quick.reunion_s)
    assert len(node.ring.named("meet")) <= met + 1


async def test_unreachable_seeds_are_retried_and_logged_once(start, until, free_port) -> None:
    port = await free_port()
    with capture_logs() as lines:
        node = await start(2, seeds=(("127.0.0.1", port),))
        await until(lambda: node.counters.get("seeds_unreachable", 0) >= 3)
        first = await start(1, listen=("127.0.0.1", port))
        await node.wait_active(10.0)
    assert node.ring.calls[0] == ("join", first.ring.me)
    assert [line["peer"] for line in lines if line["event"] == "seeds_unreachable"] == [f"127.0.0.1:{port}"]


async def test_one_reachable_seed_is_enough(start, free_port) -> None:
    first = await start(1)
    seeds = (("127.0.0.1", await free_port()), ("no.such.host.invalid", 1), first.address)
    node = await start(2, seeds=seeds)
    await node.wait_active(10.0)
    assert node.ring.calls[0] == ("join", first.ring.me)


async def test_all_are_started_with_the_same_list(start, free_port) -> None:
    """The first one founds, and only that."""
    seeds = tuple([("127.0.0.1", await free_port()) for _ in range(3)])
    nodes = [await start(number + 1, listen=seeds[number], seeds=seeds) for number in (2, 1, 0)]
    for node in nodes:
        await node.wait_active(10.0)
    assert [bool(node.ring.named("found")) for node in nodes] == [False, False, True]


async def test_the_first_does_not_found_where_a_ring_is(start, until, free_port, quick, patient) -> None:
    first = await start(1)
    port = await free_port()
    node = await start(2, patient, listen=("127.0.0.1", port), seeds=(("127.0.0.1", port), first.address))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: loop.time() > began + 3 * 2 * quick.join_s)
    assert len(node.ring.named("join")) >= 3
    assert not node.ring.named("found")


async def test_a_name_that_leads_back_is_no_seed(start, free_port) -> None:
    port = await free_port()
    node = await start(1, listen=("127.0.0.1", port), advertise="127.0.0.1", seeds=(("localhost", port),))
    await node.wait_active(10.0)
    assert node.ring.calls == [("found",)]


async def test_one_that_is_in_no_ring_is_not_joined(start, free_port) -> None:
    lost = await start(1, seeds=(("127.0.0.1", await free_port()),))
    node = await start(2, seeds=(lost.address,))
    with pytest.raises(OverlayError, match=rf"^no member of ring 'ringmq' after 0\.3 s; seeds: {show(lost.address)}$"):
        await node.wait_active(0.3)
    assert node.ring.calls == []


def test_who_waits_for_others_that_wait_says_so(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1, active=False)})
        seeds = seeds_of(guest, ONE)
        with capture_logs() as lines:
            seeds.start()
            await loop.moment(20.0)
        assert not guest.founded_at
        assert [line["event"] for line in lines] == ["no_ring_found"]
        await seeds.stop()

    virtually(story)
