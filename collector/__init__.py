"""Owns collection and reduction of what peers record; must not know the parts of a peer."""
