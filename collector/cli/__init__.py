"""Owns the command line of `ringmq collect`; must not know how a step does its work."""
