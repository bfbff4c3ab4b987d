"""Owns pure plans of who sends a message to whom; must not know topics, links or clocks."""
