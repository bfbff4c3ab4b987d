"""Topic names and filters: their validity and when they match (5.0 §4.7, §4.8.2).

Owns the rules and nothing else: it knows no session, no subscription and no trie. `matches` follows the text of the
specification, and is the reference in the tests of the tries.
"""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import MalformedPacketError, PacketError

MAX_SIZE_BYTES: Final = 65_535
"""[MQTT-4.7.3-3]. A packet cannot hold more; a name from another source could."""
MAX_LEVELS: Final = 128
"""The specification sets no maximum. Deeper than any real topic, and shallow enough to keep walks of a trie short."""

SHARED: Final = "$share/"
SYS: Final = "$SYS"
"""Root of the topics with information about the server, which alone publishes to them (§4.7.2)."""
BRIDGE_STATES: Final = f"{SYS}/broker/connection/"
BRIDGE_STATE: Final = "/state"
_SHOWN: Final = 80
"""Maximum characters of a wrong name in an error, which ends up in a log line."""
_WIDEST_BYTES: Final = 4
"""Maximum size of a character in UTF-8."""


def check_topic_name(topic: str) -> None:
    """Raise PacketError (TOPIC_NAME_INVALID) unless a message may be published to `topic`."""
    if "+" in topic or "#" in topic:
        raise _topic_invalid(topic, "has a wildcard")  # [MQTT-4.7.1-1], [MQTT-3.3.2-2]
    fault = _fault_of_characters(topic) or _fault_of_depth(topic) or _fault_of_size(topic)
    if fault:
        raise _topic_invalid(topic, fault)


def check_filter(topic_filter: str) -> None:
    """Raise PacketError unless `topic_filter`, perhaps a shared one, may be subscribed to.

    The error is a MalformedPacketError if it is no filter at all, and has the reason TOPIC_FILTER_INVALID if it is one
    that is not accepted here.
    """
    check_form(topic_filter, True)
    shared = parse_shared(topic_filter)
    fault = _fault_of_depth(shared[1] if shared else topic_filter) or _fault_of_size(topic_filter)
    if fault:
        raise PacketError(Reason.TOPIC_FILTER_INVALID, f"topic filter {_shown(topic_filter)} {fault}")


def check_form(topic_filter: str, knows_shares: bool) -> None:
    """Raise MalformedPacketError if `topic_filter` is no filter at all: the packet that has it is malformed.

    `knows_shares`: the client's version has shared subscriptions. To the others, `$share/` begins a filter like any.
    """
    shared = parse_shared(topic_filter) if knows_shares else None
    inner = shared[1] if shared else topic_filter
    fault = _fault_of_characters(inner)
    if fault is None and has_wildcard(inner):
        fault = _fault_of_wildcards(inner)
    if fault:
        raise _filter_malformed(topic_filter, fault)


def parse_shared(topic_filter: str) -> tuple[str, str] | None:
    """The share name and the filter in `$share/name/filter`; None if the filter is not a shared one.

    Raises MalformedPacketError when the name is invalid or no filter follows. Does not check that filter.
    """
    if not topic_filter.startswith(SHARED):
        return None
    group, _, inner = topic_filter.removeprefix(SHARED).partition("/")
    if not group:
        raise _filter_malformed(topic_filter, "has an empty share name")  # [MQTT-4.8.2-1]
    if has_wildcard(group):
        raise _filter_malformed(topic_filter, "has a wildcard in its share name")  # [MQTT-4.8.2-2]
    if not inner:
        raise _filter_malformed(topic_filter, "has no filter after its share name")  # [MQTT-4.8.2-2]
    return group, inner


def has_wildcard(topic_filter: str) -> bool:
    """Whether a valid filter can match other topics than its own name."""
    return "+" in topic_filter or "#" in topic_filter


def is_of_the_server(topic: str) -> bool:
    """Whether the server alone may publish to a topic."""
    return topic.startswith(SYS) and topic[len(SYS) : len(SYS) + 1] in ("", "/")


def is_state_of_a_bridge(topic: str) -> bool:
    """Whether a Mosquitto bridge says there, with its default settings, that it is connected; its will says that it is
    not any more. It connects to no server that refuses that will.
    """
    name = topic[len(BRIDGE_STATES) : -len(BRIDGE_STATE)]
    return topic == f"{BRIDGE_STATES}{name}{BRIDGE_STATE}" and bool(name) and "/" not in name


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid filter, without `$share/name/`, matches a valid topic name."""
    if topic.startswith("$") and topic_filter.startswith(("+", "#")):
        return False  # [MQTT-4.7.2-1]
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        # The parent level matches too: `sport/#` also matches `sport` (§4.7.1.2).
        wanted.pop()
        del levels[len(wanted) :]
    return len(wanted) == len(levels) and all(want in ("+", level) for want, level in zip(wanted, levels, strict=True))


def literal_prefix(topic_filter: str) -> str:
    """The levels before the first wildcard of a valid filter, without `$share/name/`; all of it if it has none.

    Empty for `#` and `+/x`; also for `/+`, whose only literal level is an empty one.
    """
    levels = topic_filter.split("/")
    literal = next((index for index, level in enumerate(levels) if level in ("+", "#")), len(levels))
    return "/".join(levels[:literal])


def _fault_of_characters(name: str) -> str | None:
    """The fault of a topic name or filter whose characters make it none."""
    if not name:
        return "is empty"  # [MQTT-4.7.3-1]
    if "\0" in name:
        return "has a null character"  # [MQTT-4.7.3-2]
    return None


def _fault_of_depth(name: str) -> str | None:
    if name.count("/") >= MAX_LEVELS:
        return f"has {name.count('/') + 1} levels, over {MAX_LEVELS}"
    return None


def _fault_of_size(name: str) -> str | None:
    if len(name) * _WIDEST_BYTES <= MAX_SIZE_BYTES:
        return None
    # The codec refuses surrogates with an error of its own; encoding them strictly here would raise another.
    size_bytes = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
    return f"has {size_bytes} bytes, over {MAX_SIZE_BYTES}" if size_bytes > MAX_SIZE_BYTES else None


def _fault_of_wildcards(inner: str) -> str | None:
    levels = inner.split("/")
    for number, level in enumerate(levels, 1):
        if level == "#" and number < len(levels):
            return "has a '#' that is not its last level"  # [MQTT-4.7.1-1]
        if level not in ("+", "#") and has_wildcard(level):
            return "has a wildcard that is not a whole level"  # [MQTT-4.7.1-1], [MQTT-4.7.1-2]
    return None


def _topic_invalid(topic: str, fault: str) -> PacketError:
    return PacketError(Reason.TOPIC_NAME_INVALID, f"topic name {_shown(topic)} {fault}")


def _filter_malformed(topic_filter: str, fault: str) -> MalformedPacketError:
    return MalformedPacketError(f"topic filter {_shown(topic_filter)} {fault}")


def _shown(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"
