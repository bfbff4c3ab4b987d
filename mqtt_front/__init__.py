"""MQTT bytes to messages and back, for the clients of this peer. Knows nothing of rings."""
