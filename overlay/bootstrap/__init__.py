"""Owns the search for a first peer of the ring; must not know keys, owners or payloads."""
