"""Mosquitto's own tests of a broker, from Debian's archive: each is a script that starts a broker and talks to it.

They are brought once into a cache folder of the user, by apt, from the archive that this machine has its packages
from. Where they cannot be had, the tests are left out, and a warning says why. So they are, without a warning, if the
environment says RINGMQ_WITHOUT_MOSQUITTO_SUITE=1.

Run by itself, as `python mosquitto_suite.py SCRIPT PORT`, this file runs one script against a front.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VERSION = "2.0.11"
SOURCE = f"mosquitto_{VERSION}.orig.tar.gz"
APT_HELPER = "/usr/lib/apt/apt-helper"
SHA256 = "7b36a7198bce85cf31b132f5c6ee36dcf5dadf86fb768501eb1e11ce95d4f78a"
TESTS = f"mosquitto-{VERSION}/test/"
WITHOUT = "RINGMQ_WITHOUT_MOSQUITTO_SUITE"
DOWNLOAD_S = 60.0
SCRIPT_S = 30.0
RECEIVE_MAXIMUM, ALIASES = 20, 10
"""Of Mosquitto, which its tests expect."""


def scripts() -> Path:
    """The folder of the scripts. Raises OSError, ValueError or SubprocessError if they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringmq"
    folder = cache / f"mosquitto-{VERSION}"
    if not folder.is_dir():
        _bring(cache, folder)
    return folder / "broker"


def _bring(cache: Path, folder: Path) -> None:
    """Beside, and then into its place as a whole: other processes may do the same at this moment."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as beside:
        made, source = Path(beside) / "made", Path(beside) / SOURCE
        _apt(APT_HELPER, "download-file", f"{_folder_of_the_archive()}/{SOURCE}", str(source), f"SHA256:{SHA256}")
        with tarfile.open(source) as archive:
            for member in archive.getmembers():
                inside = archive.extractfile(member) if member.isfile() else None
                if inside is not None and member.name.startswith(TESTS) and member.name.endswith(".py"):
                    file = made / member.name.removeprefix(TESTS)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(inside.read())
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _folder_of_the_archive() -> str:
    """The address of the folder with Mosquitto's packages, where apt has them from."""
    said = _apt("apt-get", "download", "--print-uris", "mosquitto")
    address = said.partition("'")[2].partition("'")[0]
    if "/" not in address:
        raise ValueError(f"apt knows no address of mosquitto: {said.strip() or 'no answer'}")
    return address.rpartition("/")[0]


def _apt(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def run(script: Path, port: int) -> str:
    """Run one of them; returns what it says if it fails, and nothing if it passes."""
    command = [sys.executable, __file__, str(script), str(port)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            status = process.wait(SCRIPT_S)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            # The script and its front, which outlives it when it fails.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return f"status {status}: {said.read().decode()}" if status else ""


# What follows runs in the process of the script.


def _adapt() -> None:
    """Have the scripts start a front, and expect its values in a CONNACK of 5.0 instead of those of Mosquitto."""
    suite = importlib.import_module("mosq_test")
    props = importlib.import_module("mqtt5_props")
    plain = suite.gen_connack

    def gen_connack(
        flags: int = 0, rc: int = 0, proto_ver: int = 4, properties: bytes = b"", property_helper: bool = True
    ) -> bytes:
        if proto_ver == 5 and property_helper and rc < 0x80:
            properties += props.gen_uint16_prop(props.PROP_RECEIVE_MAXIMUM, RECEIVE_MAXIMUM)
            properties += props.gen_uint16_prop(props.PROP_TOPIC_ALIAS_MAXIMUM, ALIASES)
            properties += props.gen_uint32_prop(props.PROP_MAXIMUM_PACKET_SIZE, 1 << 20)
        packet: bytes = plain(flags, rc, proto_ver, properties, False)
        return packet

    def start_broker(filename: str, port: int = 0, **_: object) -> Any:
        command = [sys.executable, str(Path(__file__).with_name("mosquitto_suite_front.py")), str(port)]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert broker.stdout is not None
        assert broker.stdout.readline(), "the front has not started"
        return broker

    suite.gen_connack, suite.start_broker = gen_connack, start_broker


def main() -> None:
    script = Path(sys.argv[1])
    os.chdir(script.parent)
    # Not this folder: modules here could hide those of the suite.
    sys.path[0:1] = [str(script.parent), str(script.parent.parent)]
    _adapt()
    sys.argv = [script.name, sys.argv[2]]
    runpy.run_path(script.name, run_name="__main__")


if __name__ == "__main__":
    main()
