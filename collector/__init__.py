"""Owns the collection and reduction of the records of peers; must not know the parts of a peer."""
