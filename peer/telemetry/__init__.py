"""Owns the times and contents of a peer's records; must not know how records are collected."""
