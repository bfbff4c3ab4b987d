"""Owns the journal on disk and recovery from it; must not know connections."""
