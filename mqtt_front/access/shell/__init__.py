"""Owns the threads that check passwords beside the event loop; must not know users' rights."""
