"""mqtt.js, in one process of node that does what it is told by lines of JSON.

npm brings it once into a cache folder of the user. Where it cannot be had, the tests fail and say why, unless the
environment says RINGMQ_WITHOUT_MQTTJS=1.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.mqtt_front.real_clients.listeners import HOST, WITHIN_S, Got, Inbox, Reach
from tests.mqtt_front.real_clients.missing import cannot

VERSION = "5.16.0"
WITHOUT = "RINGMQ_WITHOUT_MQTTJS"
NPM_S = 90.0
"""For 40 small packages over a slow line."""


def modules_with_mqttjs() -> Path:
    """The folder where node finds it. Fails or skips the test if there is none."""
    if os.environ.get(WITHOUT) == "1":
        pytest.skip(f"{WITHOUT}=1")
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            _cannot(f"{command} is not installed; on Debian: apt-get install nodejs npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringmq"
    folder = cache / f"mqttjs-{VERSION}"
    if not folder.is_dir():
        _install(cache, folder)
    return folder / "node_modules"


def _install(cache: Path, folder: Path) -> None:
    """Beside, and then into its place as a whole: other processes may do the same at this moment."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as beside:
        made = Path(beside) / "made"
        made.mkdir()
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(made)]
        try:
            done = subprocess.run(
                [*command, f"mqtt@{VERSION}"], cwd=made, capture_output=True, text=True, timeout=NPM_S, check=False
            )
        except subprocess.TimeoutExpired:
            _cannot(f"npm did not bring it within {NPM_S:g} s")
        if done.returncode:
            _cannot(f"npm failed: {done.stderr}")
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _cannot(why: str) -> None:
    cannot(f"mqtt.js cannot be had: {why}; to leave its tests out, set {WITHOUT}=1")


class Node:
    """The process. All clients share it, since each start takes half a second."""

    def __init__(self) -> None:
        environment = os.environ | {"NODE_PATH": str(modules_with_mqttjs())}
        self._process = subprocess.Popen(
            ["node", str(Path(__file__).with_name("mqttjs.cjs"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._ids = itertools.count()
        self._waiting: dict[int, Future[None]] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def connect(self, url: str, options: dict[str, object]) -> tuple[int, Inbox]:
        client, inbox = next(self._ids), Inbox()
        self._inboxes[client] = inbox
        self.order("open", client, url=url, options=options)
        return client, inbox

    def order(self, do: str, client: int, **how: object) -> None:
        number = next(self._ids)
        self._waiting[number] = done = Future()
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"id": number, "do": do, "client": client, **how}) + "\n")
        stdin.flush()
        done.result(WITHIN_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            if "done" in told:
                done = self._waiting.pop(told["done"])
                if "error" in told:
                    done.set_exception(RuntimeError(told["error"]))
                else:
                    done.set_result(None)
            else:
                message = told["message"]
                payload = base64.b64decode(message["payload"])
                got = Got(message["topic"], payload, message["qos"], message["retain"])
                self._inboxes[told["client"]].put(got)

    def close(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        try:
            self._process.wait(WITHIN_S)
        finally:
            self._process.kill()
            self._thread.join(WITHIN_S)


class MqttJs:
    """`node` is set by the tests."""

    node: Node

    def __init__(self, reach: Reach, will: Got | None = None) -> None:
        secure = "s" if reach.ca is not None else ""
        url = f"ws{secure}://{HOST}:{reach.port}/mqtt" if reach.websocket else f"mqtt{secure}://{HOST}:{reach.port}"
        options: dict[str, object] = {"protocolVersion": reach.version}
        for name, file in (("ca", reach.ca), ("cert", reach.certificate), ("key", reach.key)):
            if file is not None:
                options[name] = file.read_text()
        if will is not None:
            options["will"] = will._asdict() | {"payload": will.payload.decode()}
        self._client, self._inbox = self.node.connect(url, options)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.node.order("subscribe", self._client, filter=topic_filter, qos=qos)

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        encoded = base64.b64encode(payload).decode()
        self.node.order("publish", self._client, topic=topic, payload=encoded, qos=qos, retain=retain)

    def take(self) -> Got:
        return self._inbox.take()

    def vanish(self) -> None:
        self.node.order("vanish", self._client)

    def close(self) -> None:
        self.node.order("close", self._client)
