"""Every setting: a right value is accepted, a wrong value gives one clear line."""

import dataclasses
import math

import pytest

from ringmq.overlay.config import OverlayConfig, is_wildcard, show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.errors import OverlayError

CONFIG = OverlayConfig(id=Id(1), boot=1, listen=("127.0.0.1", 0))
OTHERS_CAN_DIAL = "a host that others can dial"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"listen": ("127.0.0.1", 70000)}, "listen must be (host, 0 to 65535), got ('127.0.0.1', 70000)"),
        ({"listen": ("127.0.0.1", -1)}, "listen must be (host, 0 to 65535), got ('127.0.0.1', -1)"),
        ({"listen": ("", 1)}, "listen must be (host, 0 to 65535), got ('', 1)"),
        ({"boot": -1}, "boot must be 0 to 2^63 - 1, got -1"),
        ({"boot": 1 << 63}, f"boot must be 0 to 2^63 - 1, got {1 << 63}"),
        ({"ring": ""}, "ring must be 1 to 128 characters, got ''"),
        ({"ring": "r" * 129}, f"ring must be 1 to 128 characters, got '{'r' * 129}'"),
        ({"advertise": ""}, f"advertise must be {OTHERS_CAN_DIAL}, got ''"),
        ({"advertise": "h" * 256}, f"advertise must be {OTHERS_CAN_DIAL}, got '{'h' * 256}'"),
        ({"seeds": (("host", 0),)}, "seeds must be (host, 1 to 65535), got ('host', 0)"),
        (
            {"seeds": (("fine", 1), ("host", 65536))},
            "seeds must be (host, 1 to 65535), got ('host', 65536)",
        ),
        ({"seeds": (("", 1),)}, "seeds must be (host, 1 to 65535), got ('', 1)"),
        ({"delay_s": (0.2, 0.1)}, "delay_s must be 0 <= low <= high <= 60, got (0.2, 0.1)"),
        ({"delay_s": (-0.1, 0.1)}, "delay_s must be 0 <= low <= high <= 60, got (-0.1, 0.1)"),
        ({"delay_s": (0.0, 61.0)}, "delay_s must be 0 <= low <= high <= 60, got (0.0, 61.0)"),
        ({"delay_s": (math.nan, 1.0)}, "delay_s must be 0 <= low <= high <= 60, got (nan, 1.0)"),
        ({"delay_seed": 1 << 64}, f"delay_seed must be less than 2^64, got {1 << 64}"),
        ({"max_frame_bytes": 65535}, "max_frame_bytes must be 64 KiB to 2 GiB, got 65535"),
        ({"max_frame_bytes": 1 << 31}, f"max_frame_bytes must be 64 KiB to 2 GiB, got {1 << 31}"),
    ],
)
def test_a_wrong_value_gives_one_clear_line(changes: dict[str, object], line: str) -> None:
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(CONFIG, **changes)
    assert str(caught.value) == f"overlay {line}"


@pytest.mark.parametrize("field", ["max_link_buffer_bytes", "max_links", "max_strangers", "max_dials"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_above_0(field: str, value: int) -> None:
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(CONFIG, **{field: value})
    assert str(caught.value) == f"overlay {field} must be above 0, got {value}"
    assert getattr(dataclasses.replace(CONFIG, **{field: 1}), field) == 1


@pytest.mark.parametrize("field", ["handshake_s", "idle_link_s", "linger_s", "redial_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_times_are_above_0(field: str, value: float) -> None:
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(CONFIG, **{field: value})
    assert str(caught.value) == f"overlay {field} must be above 0, got {value}"
    assert getattr(dataclasses.replace(CONFIG, **{field: 0.001}), field) == 0.001


@pytest.mark.parametrize(
    "changes",
    [
        {"listen": ("::1", 65535)},
        {"boot": 0},
        {"boot": (1 << 63) - 1},
        {"ring": "r" * 128},
        {"advertise": "h" * 255},
        {"seeds": (("host", 1), ("::1", 65535))},
        {"delay_s": (0.0, 0.0)},
        {"delay_s": (0.0, 60.0)},
        {"delay_seed": 1 - (1 << 64)},
        {"max_frame_bytes": 65536},
        {"max_frame_bytes": (1 << 31) - 1},
    ],
)
def test_the_outermost_right_values_are_taken(changes: dict[str, object]) -> None:
    config = dataclasses.replace(CONFIG, **changes)
    assert {field: getattr(config, field) for field in changes} == changes


# -- under which host others dial this peer


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "0.0.0.0:7"), ("::", "[::]:7")])
def test_listening_on_all_addresses_needs_an_address_to_dial(host: str, shown: str) -> None:
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(CONFIG, listen=(host, 7))
    wanted = f"a host others can dial, as {shown} listens on all addresses"
    assert str(caught.value) == f"overlay advertise must be {wanted}, got None"
    assert dataclasses.replace(CONFIG, listen=(host, 7), advertise="broker.example").advertised_host == "broker.example"


@pytest.mark.parametrize("listen", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("advertise", ["0.0.0.0", "::"])
def test_all_addresses_cannot_be_advertised(listen: str, advertise: str) -> None:
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(CONFIG, listen=(listen, 7), advertise=advertise)
    assert str(caught.value) == f"overlay advertise must be {OTHERS_CAN_DIAL}, got {advertise!r}"


def test_a_host_that_is_listened_on_is_advertised() -> None:
    assert CONFIG.advertised_host == "127.0.0.1"
    assert dataclasses.replace(CONFIG, advertise="name").advertised_host == "name"


def test_a_listen_host_too_long_to_be_advertised_is_refused() -> None:
    with pytest.raises(OverlayError, match=rf"^overlay advertise must be {OTHERS_CAN_DIAL}, got 'h+'$"):
        dataclasses.replace(CONFIG, listen=("h" * 256, 1))


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        *(("0.0.0.0", True), ("::", True), ("0:0::0", True), ("0", True), ("0.0", True), ("::ffff:0.0.0.0", True)),
        *(("127.0.0.1", False), ("::1", False), ("name", False), ("::ffff:127.0.0.1", False), ("0.0.0.0.0", False)),
    ],
)
def test_wildcards(host: str, verdict: bool) -> None:
    assert is_wildcard(host) is verdict


@pytest.mark.parametrize(
    ("address", "text"), [(("h", 1), "h:1"), (("127.0.0.1", 2), "127.0.0.1:2"), (("::1", 3), "[::1]:3")]
)
def test_addresses_are_shown_with_brackets_where_needed(address: tuple[str, int], text: str) -> None:
    assert show(address) == text
