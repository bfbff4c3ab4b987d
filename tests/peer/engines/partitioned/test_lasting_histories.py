"""Any history of crashes and restarts: nothing acknowledged misses a kept session, and no coordinator forgets one.

Peers restart within the lease of their entries, with their disks. Each has the filters of its kept sessions before
anything happens, as its front restores them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.replication.record import RecordKind
from tests.peer.conftest import Member, Net

FILTERS = ("a", "a/+", "b/c", "#")
TOPICS = ("a", "a/x", "b/c", "new/topic")
LONGEST_S = 5.0
"""The longest time that a peer is away."""


class KeptSession:
    """A filter that a session on the disk of its home has with QoS 1."""

    def __init__(self, home: Id, topic_filter: str) -> None:
        self.home = home
        self.filter = topic_filter
        self.acknowledged = False
        self.removed = False

    def acknowledge(self) -> None:
        self.acknowledged = True


class Story:
    """Some peers with kept sessions, and all that was published."""

    def __init__(self, seed: int, folder: Path, count: int, config: PubSubConfig) -> None:
        self.random = Random(seed)
        self.net = Net(config, folder)
        self.sessions: list[KeptSession] = []
        self.got: dict[Id, set[bytes]] = {}
        """What all processes of a home have delivered."""
        self.away: list[tuple[float, Member]] = []
        self.done = 0
        self.missed: list[str] = []
        for number in range(count):
            self.net.add((number << 128) // count + 5)
        self.net.run(1.0)

    # Actions

    def subscribe(self) -> None:
        home = self.member()
        topic_filter = self.random.choice(FILTERS)
        if all(one.removed or (one.home, one.filter) != (home.me.id, topic_filter) for one in self.sessions):
            session = KeptSession(home.me.id, topic_filter)
            self.sessions.append(session)
            home.core.clock.now = self.net.now
            home.core.subscribe(topic_filter, session.acknowledge, True)

    def unsubscribe(self) -> None:
        here = [one for one in self.sessions if not one.removed and one.home in self.net.members]
        if here:
            session = self.random.choice(here)
            session.removed = True
            home = self.net.members[session.home]
            home.core.clock.now = self.net.now
            home.core.unsubscribe(session.filter)

    def publish(self) -> None:
        publisher, topic = self.member(), self.random.choice(TOPICS)
        self.done_of(publisher, topic, f"{topic} {self.random.random()}".encode())

    def done_of(self, publisher: Member, topic: str, body: bytes) -> None:
        owed = [
            one
            for one in self.sessions
            if one.acknowledged and not one.removed and matches(one.filter, topic) and one.home != publisher.me.id
        ]
        publisher.core.clock.now = self.net.now
        publisher.core.publish(topic, body, 1, done=partial(self.check_done, body, owed))

    def check_done(self, body: bytes, owed: list[KeptSession], reason: Reason) -> None:
        self.done += 1
        self.collect()
        for session in owed:
            if not session.removed and body not in self.got.get(session.home, ()):
                self.missed.append(f"{body!r}, {reason.name}: {session.filter} at {session.home:x}")

    def crash(self, members: list[Member]) -> None:
        self.collect()
        self.net.crash(*members)
        for member in members:
            self.away.append((self.net.now + self.random.uniform(0.2, LONGEST_S), member))
        if not self.net.members:
            self.net.queue.clear()

    def member(self) -> Member:
        return self.random.choice(list(self.net.members.values()))

    # Time

    def run(self, seconds: float) -> None:
        end = self.net.now + seconds
        while self.away and min(at for at, _ in self.away) <= end:
            at, member = min(self.away, key=lambda one: one[0])
            self.away.remove((at, member))
            self.net.run(max(0.0, at - self.net.now))
            self.net.add(member.me.id, member.me.boot + 1, partial(self.restore, member.me.id))
        self.net.run(end - self.net.now)
        self.collect()
        self.check()

    def restore(self, home: Id, core: PartitionedEngine) -> None:
        for session in self.sessions:
            if session.home == home and not session.removed:
                core.subscribe(session.filter, session.acknowledge, True)

    def collect(self) -> None:
        for member in self.net.members.values():
            self.got.setdefault(member.me.id, set()).update(body for _, body in member.got)

    def check(self) -> None:
        assert self.missed == []
        for session in self.sessions:
            if not session.acknowledged or session.removed:
                continue
            partition = partition_of_filter(session.filter)
            for member in self.net.members.values():
                if member.core.acts(partition):
                    record = member.core.replicas.get(partition, (RecordKind.ENTRY, session.filter, session.home))
                    assert record is not None, f"{member.me.id:x} has forgotten {session.filter} at {session.home:x}"
                    assert not record.gone, "its home was never away for the length of a lease"


def play(story: Story, most_away: int, *, power_cuts: bool) -> None:
    random = story.random
    for _ in range(120):
        action = random.random()
        if action < 0.5:
            story.publish()
        elif action < 0.7:
            story.subscribe()
        elif action < 0.75:
            story.unsubscribe()
        elif action < 0.9 and len(story.away) < most_away:
            story.crash([story.member()])
        elif action > 0.9 and power_cuts and not story.away:
            # A peer that was away would lack what was granted meanwhile, and may be back first.
            story.crash(list(story.net.members.values()))
        for _ in range(random.randrange(12)):
            story.net.step()
        story.run(random.choice((0.0, 0.05, 0.5, 2.0)))
        while not story.net.members:
            story.run(0.1)
    story.run(20.0)
    story.net.crash(*story.net.members.values())
    assert story.done > 20


@pytest.mark.parametrize("seed", range(3))
def test_peers_crash_and_restart_one_or_two_at_a_time(tmp_path: Path, seed: int) -> None:
    play(Story(seed, tmp_path, 7, PubSubConfig()), 2, power_cuts=False)


@pytest.mark.parametrize("seed", range(5))
def test_power_fails_for_all_peers(tmp_path: Path, seed: int) -> None:
    """Each peer has everything on its disk, as in a ring of three with two shadows."""
    play(Story(seed, tmp_path, 3, PubSubConfig()), 1, power_cuts=True)
