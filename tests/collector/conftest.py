"""One Spark session for all tests of a process: each start takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.cli.options import MASTER
from ringmq.collector.spark.session import session


@pytest.fixture(scope="session")
def spark(spark_options: Callable[[], dict[str, str]]) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_options().items():
            patch.setenv(name, value)
        # All tests share this session: thousands of queries in one process.
        more = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "2g"}
        with session(MASTER, more) as running:
            yield running
