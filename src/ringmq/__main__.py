"""Runs the command `ringmq` as `python -m ringmq`."""

from __future__ import annotations

from ringmq.peer.cli.main import main

if __name__ == "__main__":
    main()
