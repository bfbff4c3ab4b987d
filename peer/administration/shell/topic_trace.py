"""Coordinators and subscribers of a topic: asks one peer after the other, each nearer to the coordinator.

Knows the form of a peer's answer about a topic. Has no state of its own.
"""

from __future__ import annotations

from typing import Any, Final

from ringmq.overlay.config import Caller
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import Place, ask_status, name_of
from ringmq.peer.settings.addresses import parse_address

MAX_HOPS: Final = 32
"""Several times the hops of a ring of a million peers."""


async def trace(first: Place, topic: str, caller: Caller | None = None) -> dict[str, Any]:
    """JSON-able: the partitions with the topic's subscribers, each with its coordinator and the state there.

    Raises OverlayError with one line.
    """
    questions = _Questions(topic, caller)
    about = (await questions.ask(first))["about"]
    return {
        "topic": about["topic"],
        "partitions": [await _partition(number, first, questions) for number in range(len(about["partitions"]))],
    }


class _Questions:
    """Questions about one topic. No peer is asked twice."""

    def __init__(self, topic: str, caller: Caller | None) -> None:
        self.topic = topic
        self._caller = caller
        self._answers: dict[Place, dict[str, Any]] = {}

    async def ask(self, place: Place) -> dict[str, Any]:
        if place not in self._answers:
            answer = await ask_status(place, caller=self._caller, about=self.topic)
            if answer.get("about") is None:
                raise OverlayError(f"{name_of(place)} does not answer questions about topics")
            self._answers[place] = answer
        return self._answers[place]


async def _partition(number: int, first: Place, questions: _Questions) -> dict[str, Any]:
    """Follow one partition of the topic to its coordinator."""
    place = first
    # While peers come and go, two of them may each take the other for nearer, so the number of hops is limited.
    for _ in range(MAX_HOPS):
        answer = await questions.ask(place)
        partition = answer["about"]["partitions"][number]
        if partition["nearer"] is None:
            coordinator = {"id": answer["id"], "address": answer["address"]}
            names = {"partition": partition["partition"], "filters": partition["filters"]}
            return {**names, "coordinator": coordinator, "held": partition["held"]}
        place = parse_address(partition["nearer"]["address"])
    raise OverlayError(f"the peers do not agree on the coordinator of {questions.topic!r}: try again")
