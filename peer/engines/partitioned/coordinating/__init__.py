"""Owns the records of partitions for their coordinator; must not know what publishers and clients do with them."""
