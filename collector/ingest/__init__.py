"""Owns the transfer of records from peers into files; must not know Spark."""
