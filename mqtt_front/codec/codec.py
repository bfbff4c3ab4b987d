"""The interface of the codec: packets to bytes and back, in MQTT 3.1, 3.1.1 and 5.0. Contains no code and no state.

`framing` cuts the bytes of a connection into packets; sessions give the packets their meaning.
"""

from __future__ import annotations

from ringmq.mqtt_front.codec.connect import decode_connect
from ringmq.mqtt_front.codec.decode import decode, decode_publish, read_publish
from ringmq.mqtt_front.codec.encode import PINGRESP, encode, encode_ack, encode_publish, encode_publish_parts
from ringmq.mqtt_front.codec.properties import delivery_properties, encode_properties, split_publish_properties

__all__ = [
    "PINGRESP",
    "decode",
    "decode_connect",
    "decode_publish",
    "delivery_properties",
    "encode",
    "encode_ack",
    "encode_properties",
    "encode_publish",
    "encode_publish_parts",
    "read_publish",
    "split_publish_properties",
]
