"""Owns sessions, retained messages and the form of their journal; must not know sockets or disks."""
