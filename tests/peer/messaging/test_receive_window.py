"""Messages of others: each once and in order, whatever the network does to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import LAN, PubSubConfig
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.messages import Held, Unserved
from ringmq.peer.messaging.publication import Publication, Relay, decode
from ringmq.peer.messaging.receive_window import ReceiveWindows
from tests.peer.conftest import Net

ORIGIN = Peer(Id(9), "h", 1, 1)
RESTARTED = Peer(Id(9), "h", 1, 2)


def numbered(number: int, base: int = 1, boot: int = 1) -> Publication:
    return Publication(boot, number, 1, "t", str(number).encode(), number=number, base=base)


def quiet_state() -> MessagingContext:
    net = Net(PubSubConfig())
    net.sure = False
    member = net.add(5)
    return MessagingContext(member, member, net.config)


class Box:
    def __init__(self, state: MessagingContext, serves: Callable[[str], bool] = lambda group: True) -> None:
        self.got: list[int] = []
        self.repeated: list[int] = []
        self.state = state
        self.receive_windows = ReceiveWindows(
            state,
            lambda origin, publication: self.got.append(int(publication.body)),
            lambda origin, publication: self.repeated.append(int(publication.body)),
            serves,
        )

    def answer(self) -> Held:
        self.receive_windows.acknowledge()
        self.state.flush()
        message = decode(self.state.overlay.net.queue[-1][2])  # type: ignore[attr-defined]
        assert isinstance(message, Held)
        return message


def test_publications_are_delivered_in_order_and_once(state: MessagingContext) -> None:
    box = Box(state)
    for number in (1, 3, 3, 4, 2, 2, 1, 5):
        box.receive_windows.take(ORIGIN, numbered(number))
    assert box.got == [1, 2, 3, 4, 5]
    assert box.repeated == [3, 2, 1]
    assert state.counters.duplicates == 3
    assert box.answer() == Held(1, 5, ())
    assert not box.receive_windows.owes


@given(st.integers(0, 1000))
def test_any_order_gives_the_same(seed: int) -> None:
    from tests.peer.conftest import Net  # noqa: PLC0415 - a fixture is one for all examples

    net = Net(LAN)
    member = net.add(5)
    box = Box(MessagingContext(member, member, LAN))
    numbers = list(range(1, 9)) * 2
    Random(seed).shuffle(numbers)
    for number in numbers:
        box.receive_windows.take(ORIGIN, numbered(number))
    assert box.got == list(range(1, 9))


def test_answer_names_publications_that_came_out_of_order(state: MessagingContext) -> None:
    box = Box(state)
    for number in (1, 4, 3):
        box.receive_windows.take(ORIGIN, numbered(number))
    assert box.receive_windows.owes
    assert box.answer() == Held(1, 1, (3, 4))


def test_numbers_below_the_base_are_not_waited_for(state: MessagingContext) -> None:
    box = Box(state)
    for one in (numbered(1), numbered(3), numbered(5, base=4), numbered(4, base=4)):
        box.receive_windows.take(ORIGIN, one)
    assert box.got == [1, 3, 4, 5]


def test_restarted_publisher_begins_a_new_window(state: MessagingContext) -> None:
    box = Box(state)
    box.receive_windows.take(ORIGIN, numbered(7, base=7))
    box.receive_windows.take(RESTARTED, numbered(1, boot=2))
    box.receive_windows.take(ORIGIN, numbered(8, base=8))
    assert box.got == [7, 1]
    assert len(box.receive_windows) == 1


def test_overtaken_messages_with_qos_0_are_dropped(state: MessagingContext) -> None:
    box = Box(state)
    for topic, seq, boot in (("t", 1, 1), ("t", 3, 1), ("t", 2, 1), ("t", 3, 1), ("u", 2, 1), ("t", 1, 2)):
        origin = ORIGIN if boot == 1 else RESTARTED
        box.receive_windows.take(origin, Publication(boot, seq, 0, topic, str(seq).encode()))
    assert box.got == [1, 3, 2, 1]
    assert not box.receive_windows.owes


def test_memory_is_bounded(state: MessagingContext) -> None:
    state.config = replace(LAN, max_ahead=2, max_orders=2)
    box = Box(state)
    for number in (1, 3, 4, 5):
        box.receive_windows.take(ORIGIN, numbered(number))
    assert box.answer().beyond == (3, 4)
    for topic in ("a", "b", "c", "a"):
        box.receive_windows.take(ORIGIN, Publication(1, 1, 0, topic, b"9"))
    assert box.got == [1, 9, 9, 9, 9], "the oldest is forgotten first"


def test_the_topic_published_to_last_is_forgotten_last(state: MessagingContext) -> None:
    state.config = replace(LAN, max_orders=3)
    box = Box(state)
    for seq, topic in enumerate("abcad", 1):
        box.receive_windows.take(ORIGIN, Publication(1, seq, 0, topic, b"1"))
    known = [topic for topic in (b"a", b"b", b"c", b"d") if box.receive_windows.has_given(ORIGIN, topic, 1, 1)]
    assert known == [b"a", b"c", b"d"]


def test_unserved_groups_are_reported_until_the_publisher_knows(state: MessagingContext) -> None:
    box = Box(state, lambda group: group == "here")
    box.receive_windows.take(ORIGIN, structs.replace(numbered(1), shared=("gone", "here", "away")))
    box.receive_windows.take(ORIGIN, structs.replace(numbered(2), shared=("here",)))
    told = Held(1, 2, (), (Unserved(1, ("gone", "away")),))
    assert box.answer() == told
    box.receive_windows.take(ORIGIN, structs.replace(numbered(1), shared=("gone", "here", "away")))
    assert box.answer() == told, "the first was lost"
    box.receive_windows.take(ORIGIN, numbered(3, base=2))
    assert box.answer() == Held(1, 3, ())


def test_groups_are_looked_up_at_delivery_not_at_arrival(state: MessagingContext) -> None:
    box = Box(state, lambda group: False)
    box.receive_windows.take(ORIGIN, structs.replace(numbered(2), shared=("gone",)))
    assert box.answer() == Held(1, 0, (2,))
    box.receive_windows.take(ORIGIN, numbered(1))
    assert box.answer() == Held(1, 2, (), (Unserved(2, ("gone",)),))


def test_a_false_boot_silences_nobody(state: MessagingContext) -> None:
    box = Box(state)
    false = Peer(ORIGIN.id, "h", 1, 1 << 40)
    through_tree = structs.replace(numbered(1, boot=1 << 40), relay=Relay(false, "guided", 1, ()))
    box.receive_windows.take(false, through_tree)
    box.receive_windows.take(ORIGIN, numbered(7, base=7))
    box.receive_windows.take(ORIGIN, numbered(8, base=7, boot=(1 << 64) - 1))
    box.receive_windows.take_fast(ORIGIN, (1 << 64) - 1, 1, b"t", b"x")
    box.receive_windows.take(ORIGIN, numbered(8, base=7))
    assert box.got == [1, 7, 8]
    assert state.counters.false_boots == 2


def through_a_tree(number: int, base: int = 1, boot: int = 1) -> Publication:
    return structs.replace(numbered(number, base, boot), relay=Relay(ORIGIN, "guided", 2, ()))


@given(st.sampled_from([100, 1 << 32, (1 << 63) - 1, (1 << 64) - 1]), st.booleans())
def test_numbers_that_others_name_hide_no_message_of_the_publisher(far: int, late: bool) -> None:
    """Anybody can send through a tree in the name of another."""
    state = quiet_state()
    box = Box(state)
    if late:
        box.receive_windows.take(ORIGIN, numbered(1))
    box.receive_windows.take(ORIGIN, through_a_tree(far, far))
    first = 2 if late else 1
    for number in range(first, 6):
        box.receive_windows.take(ORIGIN, numbered(number))
    assert [number for number in box.got if number < 6] == [*([1] if late else []), *range(first, 6)]
    assert box.answer().up_to >= 5


def test_what_came_through_a_tree_first_is_not_delivered_again() -> None:
    state = quiet_state()
    box = Box(state)
    for number in (5, 6):
        box.receive_windows.take(ORIGIN, through_a_tree(number, 5))
    for number in (3, 6, 4, 5, 7):
        box.receive_windows.take(ORIGIN, numbered(number, 3))
    assert box.got == [5, 6, 3, 4, 7]
    assert box.answer().up_to == 7


def test_only_the_publisher_itself_gives_numbers_up() -> None:
    state = quiet_state()
    box = Box(state)
    box.receive_windows.take(ORIGIN, numbered(1))
    box.receive_windows.take(ORIGIN, through_a_tree(4, 4))
    assert box.got == [1]
    box.receive_windows.take(ORIGIN, numbered(4, 4))
    assert box.got == [1, 4]


def test_a_sequence_that_others_name_hides_no_message_with_qos_0() -> None:
    state = quiet_state()
    box = Box(state)
    for first, (boot, seq) in enumerate([(1, 1 << 62), (1 << 62, 1)]):
        false = Publication(boot, seq, 0, "t", b"0", relay=Relay(ORIGIN, "guided", 2, ()))
        box.receive_windows.take(Peer(ORIGIN.id, "h", 1, boot), false)
        for number in (1, 2):
            box.receive_windows.take(ORIGIN, Publication(1, number + 10 * first, 0, "t", b"%d" % number))
    assert box.got == [0, 1, 2, 0, 1, 2]


def test_a_higher_boot_that_is_gone_silences_its_peer_for_a_while_only() -> None:
    """Somebody had a link in its name: ids are not proved."""
    state = quiet_state()
    box = Box(state)
    box.receive_windows.take(Peer(ORIGIN.id, "h", 1, 99), numbered(1, boot=99))
    box.answer()
    box.receive_windows.take(ORIGIN, numbered(1))
    assert box.got == [1]
    state.clock.now += state.config.entry_s + 1
    box.receive_windows.take(ORIGIN, numbered(1))
    box.receive_windows.take(ORIGIN, numbered(2))
    assert box.got == [1, 1, 2]
