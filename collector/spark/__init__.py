"""Owns Spark's session and its JVM; must not know the jobs."""
