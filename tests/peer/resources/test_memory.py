"""Memory that is not in use any more goes back to the system; each process has its allocator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ringmq.peer.resources.allocator import with_pages
from ringmq.peer.resources.memory import in_use_bytes

on_glibc = pytest.mark.skipif(not in_use_bytes(), reason="not on glibc 2.33 or newer")

HEAD = """
import gc, os, sys
from ringmq.peer.resources.memory import GivingBack, in_use_bytes
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
giving_back = GivingBack()
"""
COME_AND_GO = """
before = resident()
many = [(number, str(number), [number]) for number in range(300_000)]
kept = [many[place] for place in range(0, len(many), 3000)]
assert not giving_back.look(8)
most = resident()
del many
assert giving_back.look(8)
after = resident()
assert most > before + 40_000_000, (before, most)
assert after < before + 8_000_000, (before, after)
assert len(kept) == 100 and kept[1][1] == "3000"
"""
SMALL = """
giving_back.look(8)
some = [bytes(1000) for _ in range(in_use_bytes() // 20_000)]
giving_back.look(8)
del some
assert not giving_back.look(8)
assert giving_back.look(64)
assert not giving_back.look(64)
"""


GARBAGE = """
import asyncio
class Own:
    def __init__(self):
        self.own = self
        alive.append(1)
    def __del__(self):
        alive.pop()
alive = []
async def looks():
    loop = asyncio.get_running_loop()
    for _ in range(6):
        giving_back._look(loop)
        giving_back.stop()
for many in (0, 200_000_000):
    gc.disable()
    Own()
    gc.freeze(); gc.unfreeze()  # it is old now
    held = bytes(many)
    giving_back.look(64)
    asyncio.run(looks())
    assert len(alive) == (1 if many else 0), (many, alive)
"""


SLOW = """
import asyncio, time
from ringmq.peer.resources import memory
collected = []
def slow():
    collected.append(1)
    time.sleep(0.03)
gc.collect = slow
memory._forget_free_objects = lambda: None
def looks():
    for _ in range(6):
        giving_back._look(loop)
        giving_back.stop()
loop = asyncio.new_event_loop()
giving_back._first_bytes = in_use_bytes()
held = bytes(10_000_000)
giving_back.look(64)
looks()
looks()
assert len(collected) == 1, "it was slow"
del held
giving_back.look(64)
looks()
assert len(collected) == 2, "it is much smaller now"
"""


def run(code: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@on_glibc
@pytest.mark.parametrize("code", [COME_AND_GO, SMALL])
def test_freed_memory_is_returned(code: str) -> None:
    run(HEAD + code, with_pages(os.environ))


@on_glibc
def test_full_collections_stop_above_the_limit() -> None:
    run(HEAD + GARBAGE, with_pages(os.environ))


@on_glibc
def test_full_collections_stop_while_they_take_long() -> None:
    run(HEAD + SLOW, with_pages(os.environ))
