"""Owns machines with addresses of their own on this machine, and the network between them; must not know peers."""
