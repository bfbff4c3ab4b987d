"""Owns the sockets of clients: connecting, TLS, WebSocket, connecting again; must not know what clients publish."""
