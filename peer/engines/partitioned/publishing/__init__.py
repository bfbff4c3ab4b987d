"""Owns routes, plans and publications of the clients here; must not know how coordinators store entries."""
