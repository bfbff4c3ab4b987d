"""Owns the adapters of engines to ring and clients; must not know how an engine decides."""
