"""Publishes packets that all differ, to one topic each, with a bounded number of them in flight.

The module `sender` repeats a few prepared packets. Here a publisher sends prepared blocks of packets with one system
call each, so that the generator is faster than a server that sees each topic once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Final, NamedTuple

from ringmq.experiments.load.patterns import PAYLOAD_BYTES
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.receiver import Receiver
from ringmq.mqtt_front.codec.codec import encode, encode_publish
from ringmq.mqtt_front.codec.packets import Pingreq, Version

BLOCK: Final = 50
"""Messages of a block."""
MOST_UNANSWERED: Final = 500
"""Unacknowledged messages of the publisher, and with QoS 1 and 2 also undelivered messages: half of what a peer accepts
from a client, and of what a peer and Mosquitto queue for a client, by default."""
MOST_UNANSWERED_0: Final = 2_000
"""The same with QoS 0, where a publisher waits for nobody: some 100 kB, as in the buffers of two sockets."""
MOST_UNDELIVERED: Final = 50_000
"""Undelivered messages with QoS 0, summed over all subscribers."""
LOOK_S: Final = 0.001
"""Least time between two looks at the subscribers, as in `generator`."""
PAUSE_S: Final = 0.0002
"""Pause of the generator while it can do nothing, so that its processor time is that of its work."""
LINGER_S: Final = 5.0
"""When all messages are acknowledged and no delivery has come for this time, the missing ones are lost."""
PACKET_IDS: Final = 60_000
NUMBER_BYTES: Final = 8
"""A payload begins with the number of its message."""

Tick = Callable[[float], bool]
"""Does other work of the generator, and returns whether there was any."""


class Block(NamedTuple):
    """Packets that are sent together."""

    data: bytes
    messages: int
    answers: int
    """Acknowledgements that the server sends for it; with QoS 0 a PINGRESP."""
    deliveries: int


def payload_of(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + bytes(PAYLOAD_BYTES - NUMBER_BYTES)


def packet_size(topic: str, qos: int) -> int:
    """Size of the PUBLISH with this topic, from the publisher and to a subscriber with the same QoS."""
    return len(encode_publish(Version.V311, topic.encode(), payload_of(0), qos, packet_id=1))


def blocks(
    topics: Iterable[str],
    qos: int,
    *,
    retain: bool = False,
    size: int = BLOCK,
    deliveries: Callable[[str], int] = lambda topic: 0,
) -> Iterator[Block]:
    """Make the blocks with one message to each topic.

    A block with QoS 0 ends with a PINGREQ: without an answer, megabytes of messages would wait in the buffers of the
    socket, and the server would go on with them long after a timeout.
    """
    ping = encode(Version.V311, Pingreq())
    rest = enumerate(topics)
    while part := list(islice(rest, size)):
        packets = [
            encode_publish(
                Version.V311, topic.encode(), payload_of(number), qos, retain, packet_id=number % PACKET_IDS + 1
            )
            for number, topic in part
        ]
        if not qos:
            packets.append(ping)
        answers = len(part) if qos else 1
        yield Block(b"".join(packets), len(part), answers, sum(deliveries(topic) for _, topic in part))


@dataclass(slots=True)
class Streamed:
    """Messages that were sent until the end or the deadline."""

    sent: int = 0
    unanswered: int = 0
    """Missing acknowledgements; with QoS 0 missing PINGRESPs, of which each block has one."""
    due: int = 0
    """Deliveries of the messages that were sent."""
    delivered: int = 0
    seconds: float = 0.0

    def answered(self, qos: int) -> int:
        """Messages whose acknowledgement, or with QoS 0 the PINGRESP behind them, has come."""
        return max(0, self.sent - self.unanswered * (1 if qos else BLOCK))


class TopicStream:
    """A connected publisher, and the subscribers of its messages, which the caller has registered at the receiver."""

    def __init__(self, publisher: socket.socket, qos: int, receiver: Receiver, packet_bytes: int) -> None:
        publisher.setblocking(False)
        if qos == 0:
            receiver.await_pings(publisher)
        elif qos == 1:
            receiver.await_acknowledgements(publisher)
        else:
            receiver.complete_publications(publisher)
        self._publisher = publisher
        self._unsent = b""
        self._most_unanswered = MOST_UNANSWERED if qos else MOST_UNANSWERED_0 // BLOCK
        # A peer acknowledges what it has queued: the subscribers may be far behind.
        self._most_undelivered = MOST_UNANSWERED if qos else MOST_UNDELIVERED
        self._receiver = receiver
        self._packet_bytes = packet_bytes

    def run(
        self, work: Iterable[Block], deadline: float, ticks: Sequence[Tick] = (), look_s: float = LOOK_S
    ) -> Streamed:
        """Send all blocks, and await their answers and deliveries until the deadline.

        Raises BenchError if the server closes a connection.
        """
        receiver, done = self._receiver, Streamed()
        answered, received = receiver.acknowledged, receiver.received_bytes
        answers = 0
        coming = iter(work)
        block = next(coming, None)
        start = now = look_at = perf_counter()
        lost_at = start + LINGER_S
        while now < deadline:
            progress = self._send()
            while block is not None and not self._unsent and self._may_send(done, block):
                self._unsent = block.data
                answers += block.answers
                done.sent += block.messages
                done.unanswered += block.answers
                done.due += block.deliveries
                progress |= self._send()
                block = next(coming, None)
            if now >= look_at:
                progress |= receiver.look()
                look_at = perf_counter() + look_s
            done.unanswered = answers - (receiver.acknowledged - answered)
            delivered, done.delivered = done.delivered, (receiver.received_bytes - received) // self._packet_bytes
            if block is not None or done.unanswered or done.delivered > delivered:
                lost_at = now + LINGER_S
            for tick in ticks:
                progress |= tick(now)
            finished = block is None and not self._unsent and not done.unanswered
            if finished and (done.delivered >= done.due or now > lost_at):
                break
            if not progress:
                time.sleep(PAUSE_S)
            now = perf_counter()
        done.seconds = perf_counter() - start
        return done

    def _may_send(self, done: Streamed, block: Block) -> bool:
        fits = done.unanswered + block.answers <= self._most_unanswered or not done.unanswered
        return fits and done.due - done.delivered <= self._most_undelivered

    def _send(self) -> bool:
        """Send the rest of a block. Returns whether the system took any of it."""
        if not self._unsent:
            return False
        try:
            taken = self._publisher.send(self._unsent)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BenchError(f"the server closed a connection: {error.strerror or error}") from None
        self._unsent = self._unsent[taken:]
        return taken > 0
