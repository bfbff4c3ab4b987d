"""Owns the way of records from peers into files; must not know Spark."""
