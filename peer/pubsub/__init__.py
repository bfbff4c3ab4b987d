"""Publish and subscribe over the ring: the roles of a peer as publisher, subscriber, coordinator and shadow.

Everything but `shell` and `mqtt` is core: bytes and the time come in, bytes and the next deadline come out.
"""
