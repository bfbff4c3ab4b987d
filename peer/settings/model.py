"""Configuration of one peer: a dataclass with a field for each setting, its default and its documentation.

The docstrings under the fields are the comments of `ringmq config example`. Reads and checks nothing: `load` does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ringmq.dispatching.algorithms import ALGORITHMS, Choice
from ringmq.logger.config import RecordConfig
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.config import Address
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.messaging.config import DIRECT, PubSubConfig
from ringmq.peer.messaging.config import PRESETS as ROLES
from ringmq.peer.settings.addresses import is_loopback
from ringmq.peer.settings.tokens import Token

FANOUT: Final = 10
"""Default fan-out of a tree: it reaches a thousand subscribers in three hops."""
DISPATCHES: Final = (*ALGORITHMS, SCRIBE)
FRONTS: Final = ("own", "amqtt")
REQUIRED: Final = "required"
IDENTITIES: Final = ("auto", REQUIRED)
TLS_LISTENERS: Final = ("mqtt_tls", "mqtt_wss")
WEBSOCKET_LISTENERS: Final = ("mqtt_ws", "mqtt_wss")
LISTENERS: Final = ("mqtt", "mqtt_tls", "mqtt_ws", "mqtt_wss")


class Rule(NamedTuple):
    """Dispatch rule for the messages of some topics: one `[[topics]]` of the file."""

    filter: str
    """Topics of the rule, as an MQTT filter. The first rule whose filter matches applies, so narrow filters come
    first."""
    dispatch: str
    """How messages to these topics reach their subscribers, in place of the `dispatch` of the peer."""
    fanout: int | None = None
    """Maximum sends of any peer for one of these messages. None: the `fanout` of the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """One field per setting. The file uses these names, the command line the same names with dashes."""

    overlay: Address = ("127.0.0.1", 4883)
    """Address for other peers: TCP for links, UDP for discovery. On any address but a loopback address, peers prove
    who they are, unless `insecure` is set. With port 0 the system chooses a port; this is useful only with `join`,
    because no other peer knows the port in advance. With a token in `join`, the default is the address of this machine
    that reaches the inviter."""
    advertise: str | None = None
    """Host that other peers use to connect to this peer; required where `overlay` listens on all addresses. None: the
    host of `overlay`."""
    join: tuple[Address | Token, ...] = ()
    """Addresses of peers in the ring to join. One peer that answers is enough; more addresses help while some peers are
    down. All peers can have the same list: its first peer founds the ring, or another peer if the first stays away.
    A new machine of a ring with identity needs a token in front of one address, as `ringmq invite` prints it; the
    token is used at the first start, and ignored later. Empty: the known peers in the data folder, or a new ring."""
    identity: str = "auto"
    """Whether peers prove who they are, with certificates in their data folders. auto: where `overlay` is an address
    that other machines can reach, where the data folder has an identity, and with a token. required: on loopback
    addresses, too."""
    insecure: bool = False
    """Whether this peer may be part of a ring without identity on an address that other machines can reach. Whoever
    reaches that address can then read and write every message, past passwords and ACL."""
    data: Path | None = None
    """Folder for the peer's id, its known peers, and the sessions and retained messages of its clients;
    acknowledgements to clients then wait for the disk. None: the id is derived from the address, and nothing survives
    the process."""
    ring: str = "ringmq"
    """Name of the ring. Peers of a ring with another name are refused, so two rings in one network stay separate."""
    timing: str = "lan"
    """Preset of periods and timeouts, the same on all peers of a ring. Shorter periods detect failures sooner and cost
    more messages: lan detects a silent failure after 3 s, wan after 20 s with a fifth of the messages; local is for
    many peers on one machine."""
    hash_seed: int = 0
    """Seed of the hash of topics, the same on all peers of a ring. Another seed spreads the topics over other peers, so
    it changes a ring in which some peer owns too many busy topics. Scribe does not use it."""
    delay: tuple[float, float] | None = None
    """Emulated latency of every message, for experiments: each pair of peers gets one delay from this range, in us, ms
    or s. The range must be the same on all peers of a ring. None: no emulated latency."""
    delay_seed: int = 0
    """Seed that chooses the delays, the same on all peers of a ring. Another seed gives another network."""
    discovery: bool = True
    """Whether the peer also looks for peers over UDP, on the port number of `overlay`. Without discovery, one port
    fewer must be open, and a peer that has lost all peers it knew of finds no others."""
    mqtt: Address | None = None
    """Address for MQTT clients over TCP, without encryption. None: no such listener. A peer without any of the four
    listeners serves no clients."""
    mqtt_tls: Address | None = None
    """Address for MQTT clients over TLS, which encrypts and takes more processor time. None: no such listener."""
    mqtt_ws: Address | None = None
    """Address for MQTT clients over WebSocket, for browsers. Pages of any origin can connect in a browser that reaches
    it. None: no such listener."""
    mqtt_wss: Address | None = None
    """Address for MQTT clients over WebSocket in TLS, for pages loaded over https. None: no such listener."""
    http: Address | None = None
    """Address of the HTTP server: the live page, probes, metrics, and the commands about the whole ring as JSON. On an
    address that other machines reach, it needs `http_tokens`; on loopback it needs none, and every user of this machine
    may read and change things. None: no HTTP server."""
    http_tokens: Path | None = None
    """File of tokens for the HTTP server, a line each: `read TOKEN` or `write TOKEN`. All calls but probes then need a
    token. Read again on SIGHUP. None: no tokens."""
    tls_cert: Path | None = None
    """Certificate of the TLS listeners in PEM, with the intermediate certificates between it and its CA. Read again on
    SIGHUP. None: no TLS."""
    tls_key: Path | None = None
    """Private key of that certificate in PEM, not encrypted, because nobody is there to enter a password: let only the
    peer read the file. Read again on SIGHUP. None: no TLS."""
    tls_ca: Path | None = None
    """Certificate of a CA in PEM: each client over TLS must present a certificate of this CA. Read again on SIGHUP.
    None: clients need no certificate."""
    passwords: Path | None = None
    """Password file, as `ringmq passwd` writes it. Verifying a password takes some 40 ms of a core on purpose. Read
    again on SIGHUP. None: user names are not verified."""
    acl: Path | None = None
    """ACL file: which clients may publish and subscribe to which topics. Access that no rule allows is forbidden. Read
    again on SIGHUP. None: every client may do everything."""
    anonymous: bool | None = None
    """Whether clients without a password are admitted: more convenience or more security. None: only on listeners that
    only this machine can reach."""
    front: str = "own"
    """Broker that serves the clients: own, or amqtt for its plugins. amqtt supports less and is slower."""
    amqtt_settings: Path | None = None
    """Configuration file of amqtt in YAML, for its plugins. Its listeners are ignored. None: no plugins."""
    limits: FrontConfig = dataclasses.field(default_factory=FrontConfig)
    """Limits of clients, for all listeners together. Only in the file, as the table `[limits]`."""
    shadows: int = 2
    """Copies of each partition of topics on other peers, the same on all peers of a ring. Acknowledged subscriptions
    survive as many simultaneous crashes. Each copy costs a message per change, and memory."""
    dispatch: str = DIRECT.name
    """How messages of this peer's clients reach their subscribers. direct: this peer sends to all other peers itself,
    over one hop. guided: peers with subscribers pass the message on, which saves sends of this peer and costs hops.
    scribe: the baseline for comparisons; it promises less, and must be set on all peers of a ring."""
    fanout: int | None = None
    """Maximum sends of any peer for one message where other peers pass it on. Fewer sends mean more hops. None: 10."""
    topics: tuple[Rule, ...] = ()
    """Dispatch rules for some topics, in place of `dispatch`: a table `[[topics]]` for each filter, at most 256. More
    rules make the first message to a topic slower. Only in the file."""
    record: RecordConfig = dataclasses.field(default_factory=RecordConfig)
    """Records and their destinations. In the file as the table `[record]`; some settings also on the command line."""
    log_level: str = "info"
    """Lowest level of the log lines. debug logs the most, and takes the most space and time."""
    log_json: bool = False
    """Whether log lines are JSON objects for programs, instead of text for people."""

    @property
    def seeds(self) -> tuple[Address, ...]:
        """The addresses of `join`, without tokens."""
        return tuple(dict.fromkeys(item.address if isinstance(item, Token) else item for item in self.join))

    @property
    def token(self) -> Token | None:
        """The token in `join`."""
        return next((item for item in self.join if isinstance(item, Token)), None)

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach `overlay`."""
        return not is_loopback(self.overlay[0])

    @property
    def proves(self) -> bool:
        """Whether these settings ask for a ring with identity. A data folder with an identity asks for it, too."""
        return not self.insecure and (self.is_open or self.identity == REQUIRED or self.token is not None)

    @property
    def listeners(self) -> dict[str, Address]:
        """Addresses of the listeners for MQTT clients, by the names of their settings."""
        every = (self.mqtt, self.mqtt_tls, self.mqtt_ws, self.mqtt_wss)
        return {name: address for name, address in zip(LISTENERS, every, strict=True) if address is not None}

    @property
    def roles(self) -> PubSubConfig:
        """Settings of the pub/sub engine."""
        return dataclasses.replace(
            ROLES[self.timing],
            shadows=self.shadows,
            hash_seed=self.hash_seed,
            dispatch=self._choice(self.dispatch, self.fanout),
            rules=tuple([(rule.filter, self._choice(rule.dispatch, rule.fanout)) for rule in self.topics]),
        )

    def _choice(self, dispatch: str, fanout: int | None) -> Choice:
        return DIRECT if dispatch in (DIRECT.name, SCRIBE) else Choice(dispatch, fanout or self.fanout or FANOUT)
