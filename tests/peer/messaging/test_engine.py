"""Both engines fit the one protocol, in names and in parameters, so that an adapter can drive either."""

from __future__ import annotations

import inspect

import pytest

from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.messaging.engine import NO_DISK, Engine
from tests.peer.conftest import Net
from tests.peer.engines.scribe.alone import Lone

ENGINES = (PartitionedEngine, ScribeEngine)
MEMBERS = sorted(name for name in vars(Engine) if not name.startswith("_"))


def parameters(kind: type, name: str) -> list[str]:
    return [parameter for parameter in inspect.signature(getattr(kind, name)).parameters if parameter != "self"]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("name", MEMBERS)
def test_every_engine_has_every_member_of_the_protocol(kind: type, name: str) -> None:
    if callable(getattr(Engine, name)):
        assert parameters(kind, name) == parameters(Engine, name)
    else:
        assert isinstance(getattr(kind, name), property)


def test_engines_are_driven_by_the_protocol_alone(net: Net) -> None:
    engines: list[Engine] = [net.add(1).core, Lone().core]
    for engine in engines:
        done: list[str] = []
        engine.subscribe("a", lambda _, done=done: done.append("a"))  # type: ignore[misc]
        engine.unsubscribe("a")
        engine.tick()
        assert done == ["a"], "a filter that is removed waits no more"
        assert engine.partitions() >= (0, 0)
        assert engine.load("log").filters <= 1
        assert engine.status(0.0, {"unsendable": 0})
    assert [engine.kind for engine in engines] == ["pubsub", "scribe"]
    assert [engine.serves("$share/g/a") for engine in engines] == [True, False]
    assert [engine.topic_status("a/+", lambda key: None) for engine in engines] == [None, None]


def test_without_a_disk_there_is_nothing_to_commit() -> None:
    NO_DISK.leave("a")
    NO_DISK.forget(0.0)
    assert not NO_DISK.pending
