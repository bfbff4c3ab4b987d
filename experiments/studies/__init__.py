"""Owns the experiments of `ringmq experiment`; must not know the command line."""
