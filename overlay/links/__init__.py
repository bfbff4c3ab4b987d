"""Owns the TCP connections between peers and their frames; must not know who owns a key."""
