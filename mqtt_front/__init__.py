"""Owns the MQTT service for the clients of one peer; must not know rings."""
