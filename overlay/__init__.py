"""Who the peers are, and getting bytes to a peer or to the owner of a key."""
