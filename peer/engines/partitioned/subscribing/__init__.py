"""Owns the filters of the clients here and their registration; must not know how coordinators store them."""
