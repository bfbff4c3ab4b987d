"""Owns the match of topics to filters and receivers; must not know bytes of packets or sockets."""
