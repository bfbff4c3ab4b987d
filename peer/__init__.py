"""Owns one peer as a process and the wiring of its parts; must not know experiments or the collector."""
