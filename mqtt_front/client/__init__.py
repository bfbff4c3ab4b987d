"""Owns the client's side of MQTT: connections, and the session state that outlives them; must not know sockets."""
