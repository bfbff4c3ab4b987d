"""Owns requests about the whole ring and their answers; must not know sockets, HTTP or how answers are shown."""
