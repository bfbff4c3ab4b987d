"""Owns the ways in which publications reach subscribers across the ring; must not know sockets."""
