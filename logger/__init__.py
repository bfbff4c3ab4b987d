"""What is recorded, and in which form: log lines, samples of a peer, and what became of messages."""
