"""Owns the form of what is recorded and logged; must not know the ring, MQTT or the parts of a peer."""
