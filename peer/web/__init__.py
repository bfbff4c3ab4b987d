"""Owns the HTTP server of a peer; must not know what its pages say."""
