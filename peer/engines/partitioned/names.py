"""Where subscriptions live: the partition of a filter, the partitions that a publisher to a topic must know, and the
fingerprints and shapes of filters.

A filter without wildcards lives in the partition of its topic, any other in that of its literal prefix: `a/b/+/c` and
`a/b/#` in that of `a/b`, `#` and `+/x` in that of the empty name. A shared filter lives where its inner filter does.
"""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.matching.topics import has_wildcard, literal_prefix
from ringmq.overlay.core.ids import ID_BITS, hash128
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.space import partition_of_key

FINGERPRINT_BITS: Final = 64
_SHIFT: Final = ID_BITS - FINGERPRINT_BITS

EXACT: Final = b""
"""The shape of filters without wildcards."""


class NameHash:
    """The hash of names, by a seed that all peers of a ring share: another seed gives all names other partitions and
    fingerprints. Nothing else decides where a name lives, and disks have names alone."""

    __slots__ = ("seed",)

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def partition_of(self, name: str) -> int:
        """The partition of a topic, or of a literal prefix."""
        return partition_of_key(hash128(name, self.seed, signed=False))

    def partition_of_filter(self, topic_filter: str) -> int:
        """The partition that a valid filter lives in."""
        inner = inner_of(topic_filter)
        return self.partition_of(literal_prefix(inner) if has_wildcard(inner) else inner)

    def fingerprint_of(self, inner: str) -> int:
        """The first 64 bits of the key of a filter, without `$share/name/`."""
        return hash128(inner, self.seed, signed=False) >> _SHIFT


UNSEEDED: Final = NameHash(0)
"""The hash of a ring without a seed, as of `key_of`. Digests use it in every ring: they only compare two peers."""
partition_of: Final = UNSEEDED.partition_of
partition_of_filter: Final = UNSEEDED.partition_of_filter
fingerprint_of: Final = UNSEEDED.fingerprint_of


def prefixes_of(topic: str) -> list[str]:
    """The literal prefixes of all wildcard filters that can match a topic, by depth: the first is empty, the last is
    the topic itself, since `a/#` matches `a`."""
    prefixes = [""]
    at = topic.find("/")
    while at >= 0:
        prefixes.append(topic[:at])
        at = topic.find("/", at + 1)
    prefixes.append(topic)
    return prefixes


def shape_of(inner: str) -> bytes:
    """The number of literal levels before the first wildcard, as one byte, and then one character for each further
    level: `+`, `#`, or `.` for a literal one. Filters of one shape differ in their literal levels only."""
    if not has_wildcard(inner):
        return EXACT
    levels = inner.split("/")
    depth = next(index for index, level in enumerate(levels) if level in ("+", "#"))
    return bytes([depth]) + "".join([level if level in ("+", "#") else "." for level in levels[depth:]]).encode()
