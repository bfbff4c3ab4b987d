"""Owns the ring of peers and delivery of bytes to the owner of a key; must not know topics or MQTT."""
