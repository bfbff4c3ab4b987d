"""Owns the display and the plots of reduced tables; must not know Spark."""
