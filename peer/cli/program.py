"""The program `ringmq`: starts a peer again with the right allocator, and only then imports the command line.

Knows how a process begins. A peer starts twice, and nothing that it imports before the second start is of use.
"""

from __future__ import annotations

import sys
from typing import Final

from ringmq.peer.resources.allocator import start_again_with_pages

PEER: Final = "peer"


def main() -> None:
    """Run the command line and exit, as `ringmq.peer.cli.main.main` does."""
    if sys.argv[1:2] == [PEER]:
        start_again_with_pages()
        _without_rich()
    from ringmq.peer.cli.main import main as command_line  # noqa: PLC0415  # it imports click and asyncio

    command_line()


def _without_rich() -> None:
    """Prevent the import of rich by structlog. Call it before structlog is imported."""
    # structlog formats tracebacks with rich where it is installed, as with amqtt. A peer never shows them, and rich
    # takes megabytes.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None makes an import raise ImportError
