"""Owns the engine that keeps subscriptions by partition, so that a topic costs a match; must not know sockets, clock
or randomness."""
