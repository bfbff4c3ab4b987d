"""Owns the settings of a peer and how they are read; must not know how they are used."""
