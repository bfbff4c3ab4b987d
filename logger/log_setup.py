"""Log lines for people: where they go, from which level on, and how they look.

Owns the set-up of structlog, and of the standard library's logging, through which the libraries speak.
Knows nothing of what is said: every room calls `structlog.get_logger()` and logs an event with key-value pairs.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO, cast

import structlog
from structlog.typing import Processor

from ringmq.logger.nonblocking_stream import Impatient, waits

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _IntoStructlog(logging.Handler):
    """Makes the records of libraries look like our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().bind(library=record.name).log(
                record.levelno, record.getMessage(), exc_info=record.exc_info
            )
        except Exception:  # noqa: BLE001  # as every handler: a line that cannot be written must not end its writer
            self.handleError(record)


def configure(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send log lines from `level` on (a key of LEVELS) to `stream`, by default stderr. To be called once, first.

    A line below the level costs one call of an empty method. Colour appears only on a terminal. Who reads a pipe is not
    waited for.
    """
    stream = sys.stderr if stream is None else stream
    if waits(stream):
        stream = cast("TextIO", Impatient(stream))
    structlog.configure(
        processors=_processors(as_json=as_json, colors=stream.isatty()),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
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
    # Without padding or a traceback library: a line is one line, and cheap.
    plain = structlog.dev.plain_traceback
    return [*shared, structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain)]
