"""Fronts without sockets, for tests of the registry of client ids: each knows the clients that are connected to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from ringmq.mqtt_front.cluster import Enrolment, Standing
from ringmq.mqtt_front.sessions.moving_session import MovingSession
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from tests.peer.conftest import Member, Net

WITHIN_S: Final = 2.0


class ModelFront:
    """The clients of one engine. `now` gives the time."""

    def __init__(self, core: PartitionedEngine, now: Callable[[], float]) -> None:
        self.core = core
        self._now = now
        self.connected: set[str] = set()
        self.waiting: dict[str, int] = {}
        """Client ids of CONNECTs without an answer, each with the number of its CONNECT."""
        self.refused: list[tuple[str, Standing]] = []
        self.ousted: list[tuple[str, Standing]] = []
        self.given_up: list[tuple[str, str | None, bool]] = []
        self.standings: list[Standing] = []
        """Of all that were served."""
        self._connects = 0
        core.enrolments.clients = self

    def connect(self, client_id: str, user: str | None = None, *, clean: bool = True, kept: bool = False) -> None:
        self._connects += 1
        self.waiting[client_id] = self._connects
        enrolment = Enrolment(client_id, user, clean, kept, WITHIN_S)
        self.core.clock.now = self._now()
        self.core.enrol(enrolment, partial(self._settled, client_id, self._connects))

    def _settled(self, client_id: str, connect: int, standing: Standing, moving: MovingSession | None = None) -> None:
        if self.waiting.get(client_id) != connect:
            return
        del self.waiting[client_id]
        if standing in (Standing.CURRENT, Standing.STALE):
            self.standings.append(standing)
            self.connected.add(client_id)
        else:
            self.refused.append((client_id, standing))

    def leave(self, client_id: str) -> None:
        """The client goes, connected or not, and has no session."""
        self.waiting.pop(client_id, None)
        self.connected.discard(client_id)
        self.core.clock.now = self._now()
        self.core.discharge(client_id)

    def oust(self, client_id: str, standing: Standing) -> None:
        self.connected.discard(client_id)
        self.ousted.append((client_id, standing))

    def give_up(self, client_id: str, user: str | None, clean: bool) -> None:
        self.connected.discard(client_id)
        self.given_up.append((client_id, user, clean))


class MemberFront(ModelFront):
    """The clients of one member of a net."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.core, lambda: member.net.now)
        self.member = member


F = TypeVar("F", bound=ModelFront)


def fronts_of(net: Net) -> list[MemberFront]:
    return [MemberFront(member) for member in net.members.values()]


def homes_of(fronts: list[F], client_id: str) -> list[F]:
    return [front for front in fronts if client_id in front.connected]
