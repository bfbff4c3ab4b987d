"""Owns the adapter of Scribe to the ring; must not know how trees are built."""
