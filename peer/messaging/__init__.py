"""Owns what every dissemination engine shares; must not know sockets or the clock."""
