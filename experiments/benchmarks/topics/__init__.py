"""Owns the benchmark of many topics, a module for each group of patterns; must not know command lines."""
