"""Owns the comparison with other brokers; must not know the command line."""
