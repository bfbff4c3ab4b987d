"""Coordinators and subscribers of a topic: asks one peer after the other, each nearer to the coordinator.

Knows the form of a peer's answer about a topic. Has no state of its own.
"""

from __future__ import annotations

from typing import Any, Final

from ringmq.overlay.config import Address, show
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.settings.addresses import parse_address

MAX_HOPS: Final = 32
"""Several times the hops of a ring of a million peers."""


async def trace(first: Address, topic: str) -> dict[str, Any]:
    """JSON-able: the partitions with the topic's subscribers, each with its coordinator and the state there.

    Raises OverlayError with one line.
    """
    answers = {first: await _about(first, topic)}
    about = answers[first]["about"]
    return {
        "topic": about["topic"],
        "partitions": [await _partition(number, first, topic, answers) for number in range(len(about["partitions"]))],
    }


async def _about(address: Address, topic: str) -> dict[str, Any]:
    answer = await ask_status(address, about=topic)
    if answer.get("about") is None:
        raise OverlayError(f"{show(address)} does not answer questions about topics")
    return answer


async def _partition(number: int, first: Address, topic: str, answers: dict[Address, dict[str, Any]]) -> dict[str, Any]:
    """Follow one partition of the topic to its coordinator. No peer is asked twice."""
    address = first
    # While peers come and go, two of them may each take the other for nearer, so the number of hops is limited.
    for _ in range(MAX_HOPS):
        if address not in answers:
            answers[address] = await _about(address, topic)
        answer = answers[address]
        partition = answer["about"]["partitions"][number]
        if partition["nearer"] is None:
            coordinator = {"id": answer["id"], "address": answer["address"]}
            names = {"partition": partition["partition"], "filters": partition["filters"]}
            return {**names, "coordinator": coordinator, "held": partition["held"]}
        address = parse_address(partition["nearer"]["address"])
    raise OverlayError(f"the peers do not agree on the coordinator of {topic!r}: try again")
