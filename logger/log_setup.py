"""Log lines for people: their destination, their least level and their form.

Owns the set-up of structlog, and of the standard library's logging, which the libraries use. Knows nothing about the
events: every package calls `structlog.get_logger()` and logs an event with key-value pairs.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO, cast

import structlog
from structlog.typing import Processor

from ringmq.logger.nonblocking_stream import NonBlockingStream, may_block

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _IntoStructlog(logging.Handler):
    """Formats the log records of libraries like our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().bind(library=record.name).log(
                record.levelno, record.getMessage(), exc_info=record.exc_info
            )
        # Every logging.Handler does so: a line that cannot be written must not raise in the code that logs it.
        except Exception:  # noqa: BLE001
            self.handleError(record)


def configure(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send log lines of at least `level` (a key of LEVELS) to `stream`, by default stderr. Call it once, at the start.

    A line below the level costs one call of an empty method. Colour appears only on a terminal. A process never waits
    for the reader of a pipe.
    """
    stream = sys.stderr if stream is None else stream
    if may_block(stream):
        # structlog's WriteLogger calls only `write`, once a line with its end, and `flush`.
        stream = cast("TextIO", NonBlockingStream(stream))
    structlog.configure(
        processors=_processors(as_json=as_json, colors=stream.isatty()),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=LEVELS[level], handlers=[_IntoStructlog()], force=True)


def _processors(*, as_json: bool, colors: bool) -> list[Processor]:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        return [*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # No padding, and no traceback library even if one is installed: lines stay short and cheap.
    formatter = structlog.dev.plain_traceback
    return [*shared, structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=formatter)]
