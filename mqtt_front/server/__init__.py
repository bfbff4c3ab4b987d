"""Owns listeners, sockets, TLS and WebSocket of the MQTT service; must not know what packets mean."""
