"""Owns MQTT packets and their bytes; must not know sessions, receivers or sockets."""
