"""Owns the runs of publish and subscribe: names, failures, figures; must not know the inside of an engine."""
