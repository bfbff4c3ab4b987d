"""Commands in processes of their own, with pipes, and a peer with a listener of each kind for them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trustme

from tests.conftest import Process, wait_until

WITHIN_S = 30.0
RINGMQ = (sys.executable, "-P", "-m", "ringmq")
ALICE = ("-u", "alice", "-P", "secret")
ACL = "user alice\ntopic readwrite #\ntopic deny closed/#\n"


class Done:
    """What a command left behind."""

    def __init__(self, status: int, out: bytes, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"{self.status} {self.out!r} {self.err!r}"


class Command:
    """A command that runs. `kill` it at the end of the test."""

    def __init__(self, arguments: Sequence[str], folder: Path, stdout: int = subprocess.PIPE) -> None:
        self._err = folder / f"err-{len(list(folder.iterdir()))}"
        with self._err.open("wb") as err:
            self.popen = subprocess.Popen([*RINGMQ, *arguments], stdin=subprocess.PIPE, stdout=stdout, stderr=err)
        self._read = b""

    @property
    def err(self) -> str:
        return self._err.read_text()

    def says(self, text: str) -> None:
        """Wait until there is such a text on standard error."""

        def found() -> bool:
            assert self.popen.poll() is None or text in self.err, f"it ended: {self.err}"
            return text in self.err

        wait_until(found, WITHIN_S, f"{text!r} on standard error")

    def types(self, text: bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(text)
        self.popen.stdin.flush()

    def prints(self, count: int = 1) -> list[bytes]:
        """The next lines of its output."""
        assert self.popen.stdout is not None
        return [self.popen.stdout.readline().removesuffix(b"\n") for _ in range(count)]

    def ends(self, number: signal.Signals | None = None) -> Done:
        """Wait for its end, perhaps after a signal. Its input stays open."""
        if number is not None:
            self.popen.send_signal(number)
        out = b"" if self.popen.stdout is None else self.popen.stdout.read()
        return Done(self.popen.wait(WITHIN_S), out, self.err)

    def kill(self) -> None:
        self.popen.kill()
        with contextlib.suppress(ValueError, OSError):
            self.popen.communicate(timeout=WITHIN_S)


class Commands:
    """Runs commands of one server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Command] = []

    def start(self, *arguments: str, stdout: int = subprocess.PIPE) -> Command:
        self._running.append(Command(arguments, self._folder, stdout))
        return self._running[-1]

    def run(self, *arguments: str, typed: bytes = b"") -> Done:
        done = subprocess.run([*RINGMQ, *arguments], input=typed, capture_output=True, timeout=WITHIN_S, check=False)
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def subscribed(self, *arguments: str, stdout: int = subprocess.PIPE) -> Command:
        """A subscriber that has been granted its filters."""
        command = self.start("sub", "-d", *arguments, stdout=stdout)
        command.says("subscribed to")
        return command

    def close(self) -> None:
        for command in self._running:
            command.kill()


class EveryListener:
    """A peer with a listener of each kind, and a user: alice. `closed/#` is closed to her."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        self.ca = folder / "ca.pem"
        ca.cert_pem.write_to_path(str(self.ca))
        issued = ca.issue_cert("localhost", "127.0.0.1")
        certificate, key = folder / "server.pem", folder / "server.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        passwords, acl = folder / "passwords", folder / "acl"
        words = [*RINGMQ, "passwd", str(passwords), "alice", "--batch"]
        subprocess.run(words, input=b"secret\n", capture_output=True, timeout=WITHIN_S, check=True)
        acl.write_text(ACL)
        options = ["--overlay", "127.0.0.1:0", "--no-discovery", "--passwords", str(passwords), "--acl", str(acl)]
        options += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        for kind in ("mqtt", "mqtt-tls", "mqtt-ws", "mqtt-wss"):
            options += [f"--{kind}", "127.0.0.1:0"]
        self.process = Process(["peer", *options], folder)
        try:
            self.ports = wait_until(self._ports, WITHIN_S, "four listeners")
        except BaseException:
            self.close()
            raise

    def _ports(self) -> dict[str, str]:
        assert self.process.popen.poll() is None, self.process.err
        log = re.sub(r"\x1b\[[0-9;]*m", "", self.process.err)
        found = re.findall(r"serving MQTT.*?127\.0\.0\.1:(\d+).*?\b(mqtt(?:[-_]\w+)?)\b", log)
        ports = {kind.replace("_", "-"): port for port, kind in found}
        return ports if len(ports) == 4 else {}

    def reach(self, kind: str) -> tuple[str, ...]:
        """Options by which alice gets there."""
        port, ca = self.ports[kind], ("--cafile", str(self.ca))
        ways = {
            "mqtt": ("-p", port),
            "mqtt-tls": ("-h", "localhost", "-p", port, *ca),
            "mqtt-ws": ("-h", f"ws://localhost:{port}/mqtt"),
            "mqtt-wss": ("-h", f"wss://localhost:{port}/mqtt", *ca),
        }
        return (*ways[kind], *ALICE)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.popen.wait(WITHIN_S)
