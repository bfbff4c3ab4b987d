"""Publish and subscribe by Scribe, the baseline: a tree for each place, whose root owns the place's key.

After Castro, Druschel, Kermarrec and Rowstron, "SCRIBE: A large-scale and decentralized application-level multicast
infrastructure", IEEE JSAC 20 (8), 2002. All of it is core: bytes and the time come in, bytes and the next deadline come
out. `core` says what is promised and what is not.
"""
