"""Owns the dialogue with one connected client; must not know sockets, the clock or the disk."""
