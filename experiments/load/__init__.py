"""Owns MQTT clients that put load on servers, and what they count; must not know the command line."""
