"""Owns what all studies share, such as trials and results; must not know any study."""
