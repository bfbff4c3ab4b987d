"""Owns failures, joins and traffic in simulated rings, and their figures; must not know real processes."""
