"""The seeds: asked again and again, and the decision to found a ring."""

import asyncio
import dataclasses

import pytest
from structlog.testing import capture_logs

from ringmq.overlay.bootstrap.seeds import MAX_RETRY, YIELD, Founding, Seeds
from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LOCAL, PRESETS, Timing
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.queries import MyselfError

ME, ONE, OTHER = ("me", 1), ("one", 1), ("other", 1)
UNHURRIED = Id(SPACE // 2)
"""A peer with this id waits exactly as long as the constants say."""
LONG_S = 1000.0


def hello_of(number: int, *, active: bool = True) -> Hello:
    return Hello("ringmq", Peer(Id(number), "somewhere", 1, 1), active, None)


class Guest:
    """Records its calls; active once it founded, or met somebody active and `joins`."""

    seeds: Seeds

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
        self.seeds.answered(hello)
        self.active = self.active or (self._joins and hello.active)

    def linked(self, peer: Id) -> bool:
        return peer in self.links

    def found(self) -> None:
        self.founded_at.append(self._loop.time())
        self.active = True

    def asked_at(self, address: Address) -> list[float]:
        return [when for when, asked in self.asked if asked == address]


TIMING = dataclasses.replace(LOCAL, join_s=1.0, reunion_s=1.0, found_s=20.0)


def seeds_of(guest: Guest, *listed: Address, own: frozenset[Address] = frozenset(), peer_id: Id = UNHURRIED) -> Seeds:
    config = OverlayConfig(id=peer_id, boot=1, listen=("127.0.0.1", 0), timing=TIMING, seeds=listed)
    guest.seeds = Seeds(config, own, guest, Incidents())
    return guest.seeds


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
        assert seeds._incidents.counters["seeds_unreachable"] == len(expected)
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
        for peer_id in (Id(0), UNHURRIED, Id(SPACE - 1)):
            guest = Guest({ONE: OverlayError("refused")})
            seeds = seeds_of(guest, ONE, peer_id=peer_id)
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
        assert seeds.others == (ONE,)
        await seeds.stop()

    virtually(story)


def test_what_the_guest_raises_is_counted_and_other_seeds_go_on(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: ZeroDivisionError("our own fault"), OTHER: hello_of(2, active=False)})
        seeds = seeds_of(guest, ONE, OTHER)
        with capture_logs() as lines:
            seeds.start()
            await loop.moment(1.0)
        assert seeds._incidents.counters["seed_errors"] == 1
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
        assert "rings_founded" not in seeds._incidents.counters, "as it should be"
        await seeds.stop()

    virtually(story)


@pytest.mark.parametrize(
    ("answer", "founded_at"),
    [
        (OverlayError("refused"), 20.0),
        (hello_of(UNHURRIED + 1, active=False), 20.0),
        (hello_of(UNHURRIED - 1, active=False), 40.0),
    ],
    ids=["nobody is there", "a higher id joins too", "a lower id joins too, and comes to nothing"],
)
def test_another_than_the_first_founds_after_found_s(virtually, answer: Hello | Exception, founded_at: float) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: answer})
        seeds = seeds_of(guest, ONE, ME, own=frozenset({ME}))
        with capture_logs() as lines:
            seeds.start()
            await loop.moment(LONG_S)
        assert guest.founded_at == [founded_at]
        (told,) = (line for line in lines if line["event"] == "rings_founded")
        assert told["reason"] == "no ring found; asked one:1"
        await seeds.stop()

    virtually(story)


def test_who_founded_asks_on_soon_for_one_that_founded_too(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1, active=False), OTHER: OverlayError("refused")})
        seeds = seeds_of(guest, ONE, OTHER)
        seeds.start()
        await loop.moment(40.0)
        assert guest.founded_at == [40.0]
        guest.answers[ONE] = guest.answers[OTHER] = hello_of(1)
        met = len(guest.met)
        await loop.moment(44.1)
        assert guest.met[met:] == [hello_of(1)] * 2
        await seeds.stop()

    virtually(story)


def test_one_that_was_found_in_another_way_is_waited_for(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: OverlayError("refused")})
        seeds = seeds_of(guest, ONE)
        seeds.start()
        await loop.moment(19.0)
        seeds.answered(hello_of(3))
        await loop.moment(26.9)
        assert guest.founded_at == []
        await loop.moment(LONG_S)
        assert guest.founded_at == [27.0]
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


# -- what is said


def test_who_waits_says_for_what(virtually) -> None:
    async def story(loop) -> None:
        many = tuple((f"host{number}", 1) for number in range(6))
        guest = Guest(dict.fromkeys(many, OverlayError("refused")))
        seeds = seeds_of(guest, *many)
        with capture_logs() as lines:
            seeds.start()
            await loop.moment(15.0)
        told = [line["reason"] for line in lines if line["event"] == "no_ring_found"]
        asked = "host0:1, host1:1, host2:1, host3:1 and 2 more"
        assert told == [f"no ring found; asked {asked}; founding in 18 s"]
        assert seeds.outlook(alone=True) == f"no ring found; asked {asked}; founding in 5 s"
        assert seeds.outlook(alone=False) == "found a ring; waits for a place in it"
        seeds.answered(hello_of(7, active=False))
        assert seeds.outlook(alone=True) == f"no ring found; asked {asked}; founding in 25 s unless somewhere:1 does"
        seeds.answered(hello_of(7))
        assert seeds.outlook(alone=True) == "found a ring; waits for a place in it"
        await seeds.stop()

    virtually(story)


def test_a_ring_of_one_is_named(virtually) -> None:
    async def story(loop) -> None:
        guest = Guest({ONE: hello_of(1)})
        seeds = seeds_of(guest, ONE)
        seeds.start()
        await loop.moment(0.1)
        assert seeds.outlook(alone=True) == "alone in its ring; asks one:1 now and then"
        assert seeds.outlook(alone=False) is None
        await seeds.stop()
        lonely = Guest({})
        seeds = seeds_of(lonely)
        seeds.start()
        assert seeds.outlook(alone=True) == "alone in its ring; knows nobody to ask"

    virtually(story)


# -- the decision


LOWER, HIGHER = hello_of(10, active=False), hello_of(90, active=False)


def founding_of(peer_id: int = 50, *, first: bool = False, spread: float = 1.0) -> Founding:
    founding = Founding(Id(peer_id), TIMING, spread, began=100.0)
    founding.first = first
    return founding


@pytest.mark.parametrize(
    ("first", "answers", "due"),
    [
        (False, [], 120.0),
        (True, [], 102.0),
        (False, [(119.0, HIGHER)], 120.0),
        (False, [(119.0, LOWER)], 140.0),
        (False, [(119.0, HIGHER), (119.0, LOWER)], 140.0),
        (False, [(111.0, LOWER)], 120.0),
        (True, [(119.0, LOWER)], 102.0),
        (False, [(105.0, hello_of(10))], 120.0),
        (False, [(118.0, hello_of(10))], 126.0),
        (False, [(117.0, LOWER), (118.0, hello_of(10))], 126.0),
        (False, [(117.0, hello_of(10)), (118.0, LOWER)], 140.0),
        (True, [(118.0, hello_of(10))], 126.0),
    ],
    ids=[
        "nobody answered",
        "the first of the list",
        "a higher one",
        "a lower one",
        "both",
        "a lower one that has gone silent",
        "the first waits for no lower one",
        "there was a ring long ago",
        "there was a ring lately",
        "a lower one has come into a ring",
        "a lower one has fallen out of it",
        "the first waits for a ring",
    ],
)
def test_when_a_ring_is_due(first: bool, answers: list[tuple[float, Hello]], due: float) -> None:
    founding = founding_of(first=first)
    for when, hello in answers:
        founding.answered(hello, when)
    assert founding.due(119.5) == due


def test_of_those_that_answer_each_other_only_the_lowest_does_not_wait() -> None:
    points = (30, 10, 90, 50)
    foundings = [founding_of(peer_id) for peer_id in points]
    for founding in foundings:
        for peer_id in points:
            founding.answered(hello_of(peer_id, active=False), 119.0)
    assert [founding.due(119.5) for founding in foundings] == [140.0, 120.0, 140.0, 140.0]


def test_peers_that_cannot_reach_each_other_do_not_found_together() -> None:
    assert [founding_of(spread=spread).due(100.0) for spread in (0.75, 1.25)] == [115.0, 125.0]


@pytest.mark.parametrize("timing", PRESETS.values(), ids=PRESETS)
def test_who_waits_for_a_lower_one_asks_it_again_in_time(timing: Timing) -> None:
    assert (YIELD - 1) * timing.found_s > (MAX_RETRY + 1) * timing.join_s, "the longest pause, and the time of a join"


def test_those_that_went_silent_are_not_kept() -> None:
    founding = founding_of()
    for number in range(1000):
        founding.answered(hello_of(number, active=False), 100.0 + number)
    assert len(founding._joining) <= 8
