"""Owns the command line of `ringmq`; must not know how a command does its work."""
