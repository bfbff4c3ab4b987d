"""Owns the processes of peers and servers under test; must not know benchmarks or studies."""
