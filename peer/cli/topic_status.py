"""Who coordinates a topic and who subscribes to it: asks one peer after the other, each nearer to who knows.

Knows the form of what a peer says about a topic; reads no state of its own.
"""

from __future__ import annotations

from typing import Any, Final

from ringmq.overlay.config import Address, show
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.settings.addresses import parse_address

MAX_HOPS: Final = 32
"""Several times what a ring of a million peers takes."""


async def trace(first: Address, topic: str) -> dict[str, Any]:
    """JSON-able: the places that the topic's subscribers are at, each with its coordinator and what that holds.

    Raises OverlayError with one clear line.
    """
    answers = {first: await _about(first, topic)}
    told = answers[first]["about"]
    return {
        "topic": told["topic"],
        "places": [await _place(number, first, topic, answers) for number in range(len(told["places"]))],
    }


async def _about(address: Address, topic: str) -> dict[str, Any]:
    answer = await ask_status(address, about=topic)
    if answer.get("about") is None:
        raise OverlayError(f"{show(address)} says nothing about topics")
    return answer


async def _place(number: int, first: Address, topic: str, answers: dict[Address, dict[str, Any]]) -> dict[str, Any]:
    """Follow one place of the topic to its coordinator; who was asked before is not asked again."""
    address = first
    for _ in range(MAX_HOPS):
        if address not in answers:
            answers[address] = await _about(address, topic)
        answer = answers[address]
        one = answer["about"]["places"][number]
        if one["nearer"] is None:
            coordinator = {"id": answer["id"], "address": answer["address"]}
            return {"place": one["place"], "coordinator": coordinator, "held": one["held"]}
        address = parse_address(one["nearer"]["address"])
    raise OverlayError(f"the peers do not agree who is to coordinate {topic!r}: try again")
