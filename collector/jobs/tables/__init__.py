"""Owns the tables that records are reduced to, their columns and jobs; must not know plots."""
