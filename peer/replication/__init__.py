"""Owns copies of a coordinator's records on other peers; must not know sockets or the clock."""
