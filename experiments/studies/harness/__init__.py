"""Owns the common parts of all studies, such as trials and results; must not know any study."""
