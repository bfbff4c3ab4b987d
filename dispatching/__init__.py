"""Owns the pure plans by which peers pass a message on to its subscribers; must not know topics, links or clocks."""
