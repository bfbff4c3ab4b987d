"""Owns amqtt's broker as a replacement for the own broker; must not know rings."""
