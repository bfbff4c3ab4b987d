"""Owns what a peer tells of itself and changes when it is asked; must not know where a request came from."""
