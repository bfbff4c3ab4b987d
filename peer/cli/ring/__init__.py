"""Owns the commands about the whole ring, and how their answers look; must not know how a ring is asked."""
