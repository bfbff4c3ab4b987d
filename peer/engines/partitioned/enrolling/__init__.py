"""Owns the registry of client ids, and the enrolment of this peer's clients there; must not know filters or routes."""
