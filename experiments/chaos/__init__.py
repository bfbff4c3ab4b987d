"""Owns faults of real rings under traffic, and checks of the documents' promises; must not know the command line."""
