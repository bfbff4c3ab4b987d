"""Owns the study of peers that die; must not know the command line."""
