"""Owns the admission and the rights of users; must not know packets or connections."""
