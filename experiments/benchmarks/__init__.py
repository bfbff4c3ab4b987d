"""Owns the benchmarks of `ringmq bench` and their verdicts; must not know the command line."""
