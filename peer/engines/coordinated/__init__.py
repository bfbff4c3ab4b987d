"""Owns publish and subscribe through coordinators; must not know sockets or the clock."""
