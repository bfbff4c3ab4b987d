"""Owns the evidence that other peers live, and detours to them; must not know what follows from a death."""
