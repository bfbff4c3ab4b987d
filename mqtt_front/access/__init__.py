"""Owns who may log in and what each user may do; must not know packets or connections."""
