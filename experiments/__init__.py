"""Start rings, drive load, break things, compare: whatever runs many peers at once."""
