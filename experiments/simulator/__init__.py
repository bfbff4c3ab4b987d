"""Owns many ring cores on one virtual clock and a seeded network; must not know scenarios."""
