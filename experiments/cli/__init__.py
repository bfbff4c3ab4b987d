"""Owns the commands that start rings and experiments; must not know how figures are computed."""
