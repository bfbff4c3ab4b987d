"""Owns the Spark jobs that validate and reduce records; must not know where records come from."""
