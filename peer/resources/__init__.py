"""Owns the limits and the memory of the process; must not know the ring or MQTT."""
