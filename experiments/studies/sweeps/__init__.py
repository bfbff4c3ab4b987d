"""Owns the studies that vary one quantity; must not know the command line."""
