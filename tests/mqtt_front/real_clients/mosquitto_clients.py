"""mosquitto_pub and mosquitto_sub: a process for each subscription, and one for each message."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading

from tests.mqtt_front.real_clients.listeners import HOST, WITHIN_S, Got, Inbox, Reach
from tests.mqtt_front.real_clients.missing import cannot

MARK = "got"
"""Begins the lines that are messages; the others are about the connection."""


class Mosquitto:
    """They know no WebSocket (version 2.0)."""

    def __init__(self, reach: Reach, will: Got | None = None) -> None:
        for command in ("mosquitto_pub", "mosquitto_sub"):
            if shutil.which(command) is None:
                cannot(f"{command} is not installed; on Debian: apt-get install mosquitto-clients")
        self._options = ["-h", HOST, "-p", str(reach.port), "-V", "mqttv5" if reach.is_v5 else "mqttv311"]
        for option, file in (("--cafile", reach.ca), ("--cert", reach.certificate), ("--key", reach.key)):
            if file is not None:
                self._options += [option, str(file)]
        if will is not None:
            self._options += ["--will-topic", will.topic, "--will-payload", will.payload.decode()]
            self._options += ["--will-qos", str(will.qos), *(["--will-retain"] if will.retain else [])]
        self._inbox = Inbox()
        self._readers: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def subscribe(self, topic_filter: str, qos: int) -> None:
        command = ["mosquitto_sub", *self._options, "-d", "-t", topic_filter, "-q", str(qos)]
        command += ["-F", f"{MARK}\\t%t\\t%p\\t%q\\t%r"]
        # Lines are to come at once, not when a buffer is full.
        reader = subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        subscribed = threading.Event()
        thread = threading.Thread(target=self._read, args=(reader, subscribed))
        thread.start()
        self._readers.append((reader, thread))
        assert subscribed.wait(WITHIN_S), "there was no SUBACK"

    def _read(self, reader: subprocess.Popen[bytes], subscribed: threading.Event) -> None:
        assert reader.stdout is not None
        for line in reader.stdout:
            if line.startswith(b"Subscribed "):
                subscribed.set()
            elif line.startswith(MARK.encode()):
                _, topic, payload, qos, retain = line.rstrip(b"\n").split(b"\t")
                self._inbox.put(Got(topic.decode(), payload, int(qos), retain == b"1"))

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        command = ["mosquitto_pub", *self._options, "-t", topic, "-q", str(qos), "-s" if payload else "-n"]
        command += ["-r"] if retain else []
        done = subprocess.run(command, input=payload, capture_output=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 0, done.stderr

    def take(self) -> Got:
        return self._inbox.take()

    def vanish(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """In 5.0, mosquitto_sub asks for its will when it is told to end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        for reader, thread in self._readers:
            reader.send_signal(how)
            try:
                reader.wait(WITHIN_S)
            finally:
                reader.kill()
                thread.join(WITHIN_S)
        self._readers.clear()
