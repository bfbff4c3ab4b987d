"""The process that streams and reduces landed records: `python -m ringmq.experiments.studies.harness.spark_job
DATA`.
"""

from __future__ import annotations

import sys

from ringmq.collector.cli.options import MASTER
from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs import reduce as reducing
from ringmq.collector.jobs.stream import StreamSettings, run
from ringmq.collector.spark.session import session


def main(data: str) -> None:
    """Stream the landed records of a data folder, then write its tables. Raises CollectorError."""
    with session(MASTER, {}) as spark:
        run(spark, data, StreamSettings(once=True), lambda _: None)
        reducing.reduce(spark, data, lambda _: None)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CollectorError as error:
        sys.exit(error.format_message())
