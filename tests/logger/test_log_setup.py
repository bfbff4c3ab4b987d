"""Log lines: their level, their form and their destination."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from ringmq.logger.log_setup import LEVELS, configure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    logging.basicConfig(handlers=[], force=True, level=logging.WARNING)


@pytest.mark.parametrize("level", LEVELS)
def test_lines_below_the_level_are_not_written(level: str) -> None:
    stream = io.StringIO()
    configure(level, as_json=True, stream=stream)
    for name in LEVELS:
        getattr(structlog.get_logger(), name)("something", number=1)
        logging.getLogger("library").log(LEVELS[name], "else %d", 2)
    written = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    assert written == [name for name in LEVELS if LEVELS[name] >= LEVELS[level] for _ in range(2)]


def test_console_line_is_one_line_without_colour() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().warning("link closed", peer="3f2a@10.0.0.1:4883", why="garbage")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    for part in ("warning", "link closed", "peer=3f2a@10.0.0.1:4883", "why=garbage"):
        assert part in line


def test_terminal_gets_colour() -> None:
    stream = Terminal()
    configure(stream=stream)
    structlog.get_logger().info("hello")
    assert "\x1b[" in stream.getvalue()


def test_json_line_has_event_level_and_pairs() -> None:
    stream = io.StringIO()
    configure(as_json=True, stream=stream)
    structlog.get_logger().info("joined", leaves=32)
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "joined", "level": "info", "leaves": 32}


def test_library_records_have_the_same_form() -> None:
    stream = io.StringIO()
    configure(as_json=True, stream=stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("asyncio").exception("a task failed: %s", "renewal")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["library"]) == ("a task failed: renewal", "error", "asyncio")
    assert "ValueError: odd" in line["exception"]


def test_failed_write_does_not_raise_in_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure(stream=stream)
    stream.close()
    logging.getLogger("library").error("unheard")
    assert "ValueError" in capsys.readouterr().err
