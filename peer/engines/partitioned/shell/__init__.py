"""Owns retained messages on disk; must not know how they are replicated."""
