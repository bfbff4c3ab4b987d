"""The promises that a run is checked against: each with a sentence of a document. Knows no histories.

A test holds that each sentence stands in its document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Promise:
    """`document` is a file of this project, or the MQTT standard."""

    name: str
    document: str
    sentence: str


STANDARD: Final = "MQTT 5.0"

ACKNOWLEDGED: Final = Promise(
    "acknowledged", "docs/ring.md", "The client's PUBACK or PUBREC comes when *all* peers with subscribers have it."
)
SUBSCRIBED: Final = Promise("subscribed", "docs/ring.md", "After a SUBACK, messages published at any peer arrive.")
DEATH: Final = Promise(
    "death",
    "README.md",
    "When a machine dies, messages between the clients of the other machines still arrive.",
)
PAUSE: Final = Promise(
    "pause", "docs/ring.md", "a peer that is paused for a shorter time loses no message with QoS 1 or 2"
)
RESTART: Final = Promise(
    "restart",
    "docs/durability.md",
    "when a peer restarts within its lease, messages for its stored sessions wait for it, and none is missed",
)
KEPT: Final = Promise("kept", "docs/durability.md", "What was acknowledged is on the disk.")
CUT: Final = Promise("cut", "docs/deploy.md", "A cut of up to 6 s loses nothing")
PART: Final = Promise("part", "docs/deploy.md", "Each part keeps working alone")
POWER: Final = Promise(
    "power",
    "docs/durability.md",
    "after a power cut of all peers, a PUBACK or PUBREC comes when the peers of stored sessions have the message",
)
ONCE: Final = Promise(
    "once", "docs/ring.md", "delivered there once, unless the peer crashes before it has acknowledged it"
)
QOS_0_ONCE: Final = Promise("qos-0-once", "docs/ring.md", "With QoS 0 a message is sent once to each peer")
ORDER: Final = Promise(
    "order",
    "docs/ring.md",
    "Messages of one client to one topic with the same QoS arrive in the order of publication",
)
MATCH: Final = Promise("match", "README.md", "any MQTT client connects to any peer and sees one broker")
WILL: Final = Promise(
    "will", "docs/durability.md", "the wills of connected clients are published when the peer is back"
)
GOOD_BYE: Final = Promise("good-bye", STANDARD, "[MQTT-3.14.4-3] On receipt of DISCONNECT the will is discarded")
SHARED: Final = Promise(
    "shared", "docs/ring.md", "Each message goes to one member of the group, wherever its members are."
)
RETAINED: Final = Promise(
    "retained",
    "docs/durability.md",
    "A publisher's PUBACK or PUBREC comes when all of them have the message, on the disk if they have one.",
)
CLEARED: Final = Promise("cleared", "docs/durability.md", "Cleared topics stay cleared.")
AGREE: Final = Promise("agree", "docs/deploy.md", "Retained messages are delivered afterwards")
SESSION: Final = Promise("session", "docs/durability.md", "sessions that are not clean in 3.1.1. Their subscriptions")
PUBACK: Final = Promise("puback", "docs/deploy.md", "It ends when that peer's entries lapse")
SUBACK: Final = Promise("suback", "docs/ring.md", "A silent publisher delays a SUBACK by at most")
WHOLE: Final = Promise("whole", "docs/deploy.md", "the parts become one ring again seconds after they reach each other")
ALIVE: Final = Promise("alive", "docs/limits.md", "a faulty peer does not end anything for good")
ACTIVE: Final = Promise("active", "docs/limits.md", "messages and acknowledgements go on, and no peer leaves the ring")
DISK: Final = Promise("disk", "docs/durability.md", "The peer ends with exit status 1 and one line")
DAMAGE: Final = Promise("damage", "docs/durability.md", "ends the start with one line, and stays as it is")

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Promise))
BY_NAME: Final = {promise.name: promise for promise in ALL}
