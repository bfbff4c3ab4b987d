"""Owns what is done to simulated rings, and its figures; must not know real processes."""
