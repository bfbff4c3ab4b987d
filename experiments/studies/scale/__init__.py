"""Owns the study of rings larger than one machine can run; must not know the command line."""
