"""Owns publish and subscribe by Scribe's trees, the baseline; must not know sockets or the clock."""
