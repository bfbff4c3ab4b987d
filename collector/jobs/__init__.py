"""Owns the Spark jobs that validate and reduce records; must not know the source of records."""
