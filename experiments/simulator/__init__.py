"""Many ring cores on one virtual clock: the same code as in a peer, on a network that obeys a seed."""
