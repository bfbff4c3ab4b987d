"""The tables of reasons against §2.4, where each reason lists its packets; they are from the packets' sections."""

import pytest

from ringmq.mqtt_front.codec import reasons
from ringmq.mqtt_front.codec.reasons import CONNACK_3, SUBACK_3, SUBACK_3_FAILURE, Reason

# §2.4, table 2-6, in short: CA CONNACK, PA PUBACK and PUBREC, PR PUBREL and PUBCOMP, SA SUBACK, UA UNSUBACK,
# D DISCONNECT, A AUTH.
PACKETS = """
00 CA PA PR SA UA D A
01 SA
02 SA
04 D
10 PA
11 UA
18 A
19 A
80 CA PA SA UA D
81 CA D
82 CA D
83 CA PA SA UA D
84 CA
85 CA
86 CA
87 CA PA SA UA D
88 CA
89 CA D
8A CA
8B D
8C CA D
8D D
8E D
8F SA UA D
90 CA PA D
91 PA SA UA
92 PR
93 D
94 D
95 CA D
96 D
97 CA PA SA D
98 D
99 CA PA D
9A CA D
9B CA D
9C CA D
9D CA D
9E SA D
9F CA D
A0 D
A1 SA D
A2 SA D
"""
CODES = {int(line.split()[0], 16): line.split()[1:] for line in PACKETS.split("\n") if line}


def test_every_code_of_the_specification_is_there() -> None:
    assert set(CODES) == {int(reason) for reason in Reason}


@pytest.mark.parametrize(
    ("short", "known"),
    [
        pytest.param("CA", reasons.CONNACK_REASONS, id="MQTT-3.2.2-8"),
        pytest.param("PA", reasons.PUBACK_REASONS, id="MQTT-3.4.2-1 MQTT-3.5.2-1"),
        pytest.param("PR", reasons.PUBREL_REASONS, id="MQTT-3.6.2-1 MQTT-3.7.2-1"),
        pytest.param("SA", reasons.SUBACK_REASONS, id="MQTT-3.9.3-2"),
        pytest.param("UA", reasons.UNSUBACK_REASONS, id="MQTT-3.11.3-2"),
        pytest.param("D", reasons.DISCONNECT_REASONS, id="MQTT-3.14.2-1"),
        pytest.param("A", reasons.AUTH_REASONS, id="MQTT-3.15.2-1"),
    ],
)
def test_each_packet_has_its_reasons(short: str, known: dict[int, Reason]) -> None:
    assert {code: int(reason) for code, reason in known.items()} == {
        code: code for code, packets in CODES.items() if short in packets
    }


def test_return_codes_of_3() -> None:
    """3.1.1 table 3.1, and §3.9.3."""
    assert set(CONNACK_3.values()) == {0, 1, 2, 3, 4, 5}
    assert set(CONNACK_3) <= set(reasons.CONNACK_REASONS.values()) | {Reason.SERVER_SHUTTING_DOWN}
    assert {int(reason) for reason in SUBACK_3.values()} == {0, 1, 2, SUBACK_3_FAILURE}
