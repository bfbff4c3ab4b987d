"""Runs the command `ringmq` as `python -m ringmq`."""

from __future__ import annotations

from ringmq.peer.cli.program import main

if __name__ == "__main__":
    main()
