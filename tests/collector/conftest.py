"""One Spark session for all tests of a process: each start takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.cli.options import MASTER
from ringmq.collector.spark.session import session
from ringmq.experiments.studies.harness.spark_reduce import JAVA

QUICK = JAVA
"""Most tests end before better compilation would pay off, as the jobs of experiments do."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        # All tests share this session: thousands of queries in one process, each over a few rows. Spark interprets them
        # here, as compiling each costs more than it saves; the commands, and their tests, compile.
        interpret = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        more = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "2g", **interpret}
        with session(MASTER, more) as running:
            yield running
