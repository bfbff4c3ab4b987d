"""Owns MQTT clients that put load on servers, and their counts; must not know the command line."""
