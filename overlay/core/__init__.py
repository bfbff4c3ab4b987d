"""Owns the decisions of the ring as plain calls; must not know sockets, the clock, chance or tasks."""
