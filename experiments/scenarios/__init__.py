"""What is done to simulated rings, and the figures that come of it."""
