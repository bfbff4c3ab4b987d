"""A headless Chromium, driven over its pipe (the DevTools protocol), without any further package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from tests.conftest import wait_until
from tests.mqtt_front.real_clients.missing import cannot

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--mute-audio", "--window-size=1200,900", "--remote-debugging-pipe",
)  # fmt: skip
WITHIN_S: Final = 30.0


def chromium() -> str:
    """The program. Where there is none, the test is left out."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        cannot("there is no Chromium here: apt-get install chromium")
    return found


class Browser:
    """One page. `close` it at the end."""

    def __init__(self, folder: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It reads commands from descriptor 3, and writes to 4.
        words = [chromium(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, "bash", *words], pass_fds=(to_browser, from_browser), stdout=log, stderr=log
            )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._session: str | None = None
        self.errors: list[str] = []
        """Errors of the console, and exceptions that nobody caught."""
        self.requests: list[str] = []
        """Addresses that the page has asked for."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + WITHIN_S
        while number not in self._answers:
            assert time.monotonic() < deadline, f"no answer to {method}"
            self._take(1.0)
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _take(self, within_s: float) -> None:
        if not select.select([self._read], (), (), within_s)[0]:
            return
        data = os.read(self._read, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in messages:
            self._event(json.loads(message))

    def _event(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        parameters = message.get("params", {})
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.errors.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(parameters["url"])

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until("location.protocol === 'http:' && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page. Its dialogs are answered with yes."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression is true."""
        return wait_until(lambda: self.run(script), WITHIN_S, script)

    def shot(self, file: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """A picture of the page, for people."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._write)
        self._process.terminate()
        try:
            self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
