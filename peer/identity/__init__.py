"""Owns the data folder of a peer, its lock and its id; must not know sockets."""
