"""Everything that a peer records, and its form: log lines, samples of the peer, and deliveries of messages."""
