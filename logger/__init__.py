"""Owns the form of records and log lines; must not know the ring, MQTT or the parts of a peer."""
