"""The ingest of the records that `logger` emits, and the Spark jobs that reduce them to tables."""
