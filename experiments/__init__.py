"""Owns rings on one machine, load, benchmarks, studies and the simulator; nothing else may import it."""
