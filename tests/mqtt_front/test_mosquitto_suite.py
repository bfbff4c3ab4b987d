"""Mosquitto's own tests of a broker, those that apply, against a front."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path

import pytest

from ringmq.experiments.processes.ports import choose_ports
from tests.mqtt_front.real_clients.mosquitto_suite import WITHOUT, run, scripts

PASSING = (
    "01-connect-bad-packet",
    "01-connect-disconnect-v5",
    "01-connect-invalid-id-0",
    "01-connect-invalid-id-missing",
    "01-connect-invalid-id-utf8",
    "01-connect-invalid-protonum",
    "01-connect-invalid-reserved",
    "01-connect-success",
    "01-connect-uname-invalid-utf8",
    "01-connect-uname-no-flag",
    "01-connect-uname-password-success-no-tls",
    "01-connect-uname-pwd-no-flag",
    "02-shared-qos0-v5",
    "02-subhier-crash",
    "02-subpub-qos0",
    "02-subpub-qos0-queued-bytes",
    "02-subpub-qos0-retain-as-publish",
    "02-subpub-qos0-send-retain",
    "02-subpub-qos0-subscription-id",
    "02-subpub-qos0-topic-alias",
    "02-subpub-qos1",
    "02-subpub-qos1-message-expiry-retain",
    "02-subpub-qos1-message-expiry-will",
    "02-subpub-qos2-pubrec-error",
    "02-subscribe-dollar-v5",
    "02-subscribe-persistence-flipflop",
    "02-subscribe-qos0",
    "02-subscribe-qos1",
    "02-subscribe-qos2",
    "02-unsubscribe-qos0",
    "02-unsubscribe-qos1",
    "02-unsubscribe-qos2",
    "02-unsubscribe-qos2-multiple",
    "03-pattern-matching",
    "03-publish-b2c-disconnect-qos1",
    "03-publish-b2c-disconnect-qos2",
    "03-publish-b2c-qos1-len",
    "03-publish-b2c-qos2-len",
    "03-publish-dollar",
    "03-publish-qos1",
    "03-publish-qos1-no-subscribers-v5",
    "04-retain-qos0",
    "04-retain-qos0-clear",
    "04-retain-qos0-fresh",
    "04-retain-qos0-repeated",
    "04-retain-qos1-qos0",
    "05-clean-session-qos1",
    "05-session-expiry-v5",
    "07-will-delay-session-expiry",
    "07-will-delay-session-expiry2",
    "07-will-disconnect-with-will",
    "07-will-invalid-utf8",
    "07-will-no-flag",
    "07-will-null",
    "07-will-null-topic",
    "07-will-qos0",
    "07-will-reconnect-1273",
    "12-prop-maximum-packet-size-connect",
    "12-prop-maximum-packet-size-publish",
    "12-prop-response-topic",
    "12-prop-response-topic-correlation-data",
    "12-prop-subpub-content-type",
)

CONFIGURED = "needs a setting of Mosquitto, from a configuration file"
REASON = "expects a DISCONNECT without text: here it has a reason string"
GOODBYE = "expects a close: here a client of 5.0 gets a DISCONNECT with the reason first"
NOBODY = "expects success: here a PUBACK or PUBREC of 5.0 says that nobody subscribes, a PUBCOMP that the id is unknown"
DEPTH = "has a topic of more levels than the 128 of RingMQ"
WILL = "expects no will where the session ends, or the connection is taken over (5.0 §3.1.2.5, §3.1.3.2.2)"
HELPER = "starts another script of the suite, or fails by itself"
ORDER = "expects PUBREC before the message: here a subscriber that publishes may get the message first"
PROPERTIES = "expects another order of properties, which has no meaning (5.0 §2.2.2.2), or a client id of another form"
SIZE = "expects a message of 21 bytes for a client that takes 20: the fixed header counts, too (5.0 §3.1.2.11.4)"
FORMAT = "sends a payload format of 0xed, which must be 0 or 1 (5.0 §3.3.2.3.2)"
NAMES = "expects that nobody may publish to $share/share/topic: only filters are shared (5.0 §4.8.2)"
DIFFERING = {
    "01-connect-allow-anonymous": CONFIGURED,
    "01-connect-connack-2163": GOODBYE,
    "01-connect-duplicate": GOODBYE,
    "01-connect-uname-no-password-denied": CONFIGURED,
    "01-connect-uname-or-anon": CONFIGURED,
    "01-connect-uname-password-denied": CONFIGURED,
    "01-connect-uname-password-denied-no-will": CONFIGURED,
    "01-connect-zero-length-id": CONFIGURED,
    "02-subpub-qos0-long-topic": DEPTH,
    "02-subpub-qos0-oversize-payload": CONFIGURED,
    "02-subpub-qos0-topic-alias-unknown": REASON,
    "02-subpub-qos1-bad-pubcomp": GOODBYE,
    "02-subpub-qos1-bad-pubrec": GOODBYE,
    "02-subpub-qos1-message-expiry": HELPER,
    "02-subpub-qos1-nolocal": NOBODY,
    "02-subpub-qos1-oversize-payload": CONFIGURED,
    "02-subpub-qos2": ORDER,
    "02-subpub-qos2-1322": NOBODY,
    "02-subpub-qos2-bad-puback-1": GOODBYE,
    "02-subpub-qos2-bad-puback-2": GOODBYE,
    "02-subpub-qos2-bad-pubcomp": GOODBYE,
    "02-subpub-qos2-receive-maximum-1": HELPER,
    "02-subpub-qos2-receive-maximum-2": HELPER,
    "02-subpub-qos2-receive-maximum-helper": HELPER,
    "02-subscribe-invalid-utf8": REASON,
    "02-subscribe-long-topic": DEPTH,
    "02-unsubscribe-invalid-no-topic": REASON,
    "03-publish-c2b-disconnect-qos2": NOBODY,
    "03-publish-c2b-qos2-len": NOBODY,
    "03-publish-dollar-v5": NAMES,
    "03-publish-invalid-utf8": REASON,
    "03-publish-long-topic": DEPTH,
    "03-publish-qos1-max-inflight": CONFIGURED,
    "03-publish-qos1-max-inflight-expire": CONFIGURED,
    "03-publish-qos1-queued-bytes": HELPER,
    "03-publish-qos1-retain-disabled": CONFIGURED,
    "03-publish-qos2": NOBODY,
    "03-publish-qos2-max-inflight": CONFIGURED,
    "04-retain-check-source": CONFIGURED,
    "04-retain-check-source-persist": CONFIGURED,
    "04-retain-check-source-persist-diff-port": CONFIGURED,
    "04-retain-upgrade-outgoing-qos": CONFIGURED,
    "07-will-delay": WILL,
    "07-will-delay-reconnect": WILL,
    "07-will-delay-recover": WILL,
    "07-will-oversize-payload": CONFIGURED,
    "07-will-properties": PROPERTIES,
    "07-will-takeover": WILL,
    "12-prop-assigned-client-identifier": PROPERTIES,
    "12-prop-maximum-packet-size-broker": CONFIGURED,
    "12-prop-maximum-packet-size-publish-qos1": SIZE,
    "12-prop-maximum-packet-size-publish-qos2": SIZE,
    "12-prop-server-keepalive": CONFIGURED,
    "12-prop-session-expiry-invalid": REASON,
    "12-prop-subpub-payload-format": FORMAT,
    "12-prop-topic-alias-invalid": REASON,
}
"""Scripts for clients that are not expected to pass, and why. docs/conformance/README.md says how to run them."""


@pytest.fixture(scope="module")
def folder() -> Path:
    if os.environ.get(WITHOUT) == "1":
        pytest.skip(f"{WITHOUT}=1")
    try:
        return scripts()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = f"Mosquitto's own tests were left out, as they cannot be had here: {error}"
        warnings.warn(why, stacklevel=1)
        pytest.skip(why)


@pytest.mark.parametrize("name", PASSING)
def test_a_script_of_mosquitto_passes(folder: Path, name: str) -> None:
    assert run(folder / f"{name}.py", choose_ports(0, 1)[0]) == ""


def test_each_script_for_clients_is_named_once(folder: Path) -> None:
    groups = ("01", "02", "03", "04", "05", "07", "12")
    assert sorted([*PASSING, *DIFFERING]) == sorted(
        file.stem for file in folder.glob("*.py") if file.name.startswith(groups) and file.name[2] == "-"
    )
