"""MQTT bytes to messages and back, for the clients of this peer. Nothing in it yet: no client can connect."""
