"""Every setting of a peer's overlay, with its unit and its trade-off."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Container
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, Protocol

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOST
from ringmq.overlay.core.timing import LAN, Timing
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import MAX_RING_CHARS
from ringmq.overlay.links.proofs import Proof

Address = tuple[str, int]

_ZERO: Final = re.compile(r"0+(\.0+){0,3}")
"""0.0.0.0 in the short forms that the system's resolver takes."""


def show(address: Address) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of this machine. No peer can dial such a host."""
    try:
        address = ip_address(host)
    except ValueError:
        return _ZERO.fullmatch(host) is not None
    # Before Python 3.13, `is_unspecified` is false for ::ffff:0.0.0.0.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_unspecified


class Caller(Protocol):
    """The identity of a process that connects to peers."""

    @property
    def client(self) -> ssl.SSLContext: ...

    def read(self, certificate: bytes) -> Proof | None:
        """What the certificate of the other side proves, in DER. Raises OverlayError if nothing may be said to it."""


class Credentials(Caller, Protocol):
    """The identity of a peer in a ring whose peers prove who they are. Its calls may take long, but do not block."""

    @property
    def server(self) -> ssl.SSLContext:
        """For inbound connections: asks for a certificate, but admits connections without."""

    @property
    def expelled(self) -> Container[Id]: ...

    @property
    def expulsions(self) -> bytes:
        """Digest of the list of expelled peers."""

    def evidence(self, about: Proof | None) -> bytes:
        """The signed list of expelled peers, or what it says about the peer with this proof."""

    async def learn(self, evidence: bytes) -> None:
        """Take over what is new in the list of another peer. Raises ProtocolError if it is not of this ring."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a peer is expelled."""

    async def admit(self, request: bytes, host: str) -> bytes:
        """Answer a JOIN from that host, with an ADMISSION."""

    async def command(self, request: bytes) -> bytes:
        """Answer a COMMAND of the operator of this machine, with a RESULT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayConfig:
    """A wrong value raises OverlayError with one line that names the field, the value and the right values."""

    id: Id
    boot: int
    """SWIM's incarnation number: grows with each start of the process, so that old addresses and connections lose."""
    listen: Address
    """Port 0 lets the system choose; Node.address has the port."""
    advertise: str | None = None
    """The host name or address that others dial; None: the listen host (not allowed for 0.0.0.0)."""
    ring: str = "ringmq"
    """Peers of another ring's name are refused."""
    ring_settings: str = ""
    """Other settings that must be equal at all peers of the ring, as a line; peers with another line are refused."""
    seeds: tuple[Address, ...] = ()
    """Peers to ask for the ring. Empty: found a ring. The peer whose own address comes first founds it when no other
    seed answers as part of a ring within 2 join_s, so that all peers may be started with the same list. Any other peer
    founds a ring after `timing.found_s` without a ring."""
    timing: Timing = LAN
    delay_s: tuple[float, float] | None = None
    """Emulated latency: each pair of peers gets one delay out of this range, by delay_seed and the two ids."""
    delay_seed: int = 0
    discovery: bool = True
    """Whether the kademlia side-channel (UDP, same port number) runs. Without it, a ring that lost all its seeds can
    be found through no other peer."""
    credentials: Credentials | None = None
    """With them, peers prove their ids to each other, and all bytes between them are encrypted. None: ids are believed,
    and whoever reaches the address reads and writes everything."""
    control: Path | None = None
    """Unix socket for `ringmq status` and commands on this machine. None: no such socket."""

    max_frame_bytes: int = 16 << 20
    """The largest frame, in and out. Above MQTT payloads in practice. The unfinished frames of all links together are
    bounded (`overlay.links.table`)."""
    max_link_buffer_bytes: int = 16 << 20
    """Bytes that may wait for a slow peer. Further parcels are refused to their sender; control messages have a quarter
    more, and beyond that the link is closed as stuck. More rides out longer hiccups and costs memory per slow peer."""
    max_links: int = 2048
    """Open links. Beyond it, an inbound link is refused, and an outbound link closes the least used. Each takes a file
    descriptor: mind `ulimit -n`."""
    max_strangers: int = 128
    """Inbound connections that have not said HELLO yet; beyond it, the oldest is closed: whoever has something to say,
    such as a peer or `ringmq status`, says it at once."""
    max_dials: int = 1024
    """Outbound connections being opened; beyond it, messages for further peers are refused. A publisher may have to
    dial as many subscribers' peers at once."""
    handshake_s: float = 3.0
    """From dialling to an open link, or from accepting to HELLO: above two round trips and a lost packet (1 s)."""
    idle_link_s: float = 60.0
    """A link without a frame either way for this time is closed. Neighbours send heartbeats and so keep their links.
    Shorter frees descriptors, longer saves handshakes and notices crashes at once."""
    linger_s: float = 2.0
    """Time for a closed link to flush, and to receive the frames that are on their way."""
    redial_s: float = 0.2
    """After a failed dial, parcels for that peer are refused for this time instead of dialling for each of them."""

    def __post_init__(self) -> None:
        self._check("listen", self.listen, bool(self.listen[0]) and 0 <= self.listen[1] <= 65535, "(host, 0 to 65535)")
        # The bounds of the messages: a peer whose HELLO others refuse to decode would never get a link.
        self._check("boot", self.boot, 0 <= self.boot < 1 << 63, "0 to 2^63 - 1")
        self._check("ring", self.ring, 0 < len(self.ring) <= MAX_RING_CHARS, f"1 to {MAX_RING_CHARS} characters")
        if self.advertise is None:
            self._check("advertise", None, not is_wildcard(self.listen[0]), "a host others can dial, as "
                        f"{show(self.listen)} listens on all addresses")  # fmt: skip
        host = self.advertise if self.advertise is not None else self.listen[0]
        usable = 0 < len(host) <= MAX_HOST and not is_wildcard(host)
        self._check("advertise", host, usable, "a host that others can dial")
        for seed in self.seeds:
            self._check("seeds", seed, bool(seed[0]) and 1 <= seed[1] <= 65535, "(host, 1 to 65535)")
        if self.delay_s is not None:
            self._check(
                "delay_s", self.delay_s, 0 <= self.delay_s[0] <= self.delay_s[1] <= 60, "0 <= low <= high <= 60"
            )
        self._check("delay_seed", self.delay_seed, abs(self.delay_seed) < 1 << 64, "less than 2^64")
        self._check("max_frame_bytes", self.max_frame_bytes, 65536 <= self.max_frame_bytes < 1 << 31, "64 KiB to 2 GiB")
        for name in ("max_link_buffer_bytes", "max_links", "max_strangers", "max_dials"):
            self._check(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("handshake_s", "idle_link_s", "linger_s", "redial_s"):
            self._check(name, getattr(self, name), getattr(self, name) > 0, "above 0")

    def _check(self, field: str, value: object, right: bool, wanted: str) -> None:
        if not right:
            raise OverlayError(f"overlay {field} must be {wanted}, got {value!r}")

    @property
    def advertised_host(self) -> str:
        return self.listen[0] if self.advertise is None else self.advertise
