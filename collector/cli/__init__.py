"""Owns the command line of `ringmq collect`; must not know how the steps work."""
