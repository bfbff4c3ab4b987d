"""Owns the commands that start rings and experiments; must not know the computation of figures."""
