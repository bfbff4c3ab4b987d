"""Owns the reliable, ordered delivery of items between two peers; must not know the items, sockets or the clock."""
