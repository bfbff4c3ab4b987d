"""The table of a link's phases by itself, and links held to it by random histories."""

import random

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import Reason, encode_goodbye
from ringmq.overlay.links.link import Link
from ringmq.overlay.links.phase import TRANSITIONS, LinkEvent, Phase

LOW = Id(1000)
PEER = Peer(Id(2000), "there", 1, 1)


def test_every_phase_is_reachable_and_no_transition_leaves_the_closed_one() -> None:
    reached = {Phase.STRANGER}
    for _ in Phase:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(Phase)
    assert {after for (before, _), after in TRANSITIONS.items() if before is Phase.CLOSED} == {Phase.CLOSED}


def test_random_histories_take_every_transition_of_the_table_and_no_other(virtually, board, wire) -> None:
    """An unexpected event fails an assertion; no other code changes the phase."""
    taken: set[tuple[Phase, LinkEvent]] = set()

    class Recorded(Link):
        def _to(self, event: LinkEvent) -> None:
            before = self.phase
            super()._to(event)
            assert self.phase is TRANSITIONS[before, event]
            taken.add((before, event))
            phases.append(self.phase)

    def act(link: Link, connection, chance: random.Random) -> None:
        choice = chance.randrange(8)
        if link.phase is Phase.STRANGER and chance.random() < 0.5:
            link.open(PEER, chance.choice([None, 0.1]))
        elif choice == 1:
            link.close(chance.choice(list(Reason)))
        elif choice == 2:
            link.data_received(frame(Kind.GOODBYE, encode_goodbye(chance.choice(list(Reason)))))
        elif choice == 3:
            link.data_received(chance.choice([frame(Kind.PARCEL, b"x"), frame(Kind.STATUS_REQUEST), b"\xff" * 4]))
        elif choice == 4:
            link.send(Kind.CONTROL, b"x")
            connection.deaf = chance.random() < 0.5
        elif choice == 5 and chance.random() < 0.3:
            link.abort()
        elif choice == 6:
            link.connection_lost(None)

    async def story(loop) -> None:
        for seed in range(400):
            chance = random.Random(seed)
            link = Recorded(board, OverlayConfig(id=LOW, boot=1, listen=("127.0.0.1", 0), linger_s=0.5), None)
            connection = wire(link)
            phases[:] = [link.phase]
            link.connection_made(connection)
            for _ in range(chance.randrange(12)):
                act(link, connection, chance)
                assert link.phase is phases[-1]
                await loop.moment(loop.time() + chance.choice([0.0, 0.0, 0.6]))
            link.abort()
            await loop.moment(loop.time() + 100.0)
            assert link.phase is phases[-1] is Phase.CLOSED

    phases: list[Phase] = []
    virtually(story)
    assert taken == set(TRANSITIONS)
