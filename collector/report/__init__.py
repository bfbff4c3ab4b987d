"""Owns how reduced tables are shown and plotted; must not know Spark."""
