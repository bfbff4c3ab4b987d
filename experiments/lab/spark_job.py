"""The process that streams and reduces what has landed: `python -m experiments.lab.spark_job DATA`."""

from __future__ import annotations

import sys

from collector import reduce as reducing
from collector.errors import CollectorError
from collector.options import MASTER
from collector.spark import session
from collector.stream import StreamSettings, run


def main(data: str) -> None:
    """Into the tables of a data folder. Raises CollectorError."""
    with session(MASTER, {}) as spark:
        run(spark, data, StreamSettings(once=True), lambda _: None)
        reducing.reduce(spark, data, lambda _: None)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CollectorError as error:
        sys.exit(error.format_message())
