"""Ingests what `logger` emits; the Spark jobs that reduce it. Nothing in it yet."""
