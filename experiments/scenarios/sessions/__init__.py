"""Owns the runs of whole peers and MQTT clients on virtual time: faults, figures; must not know the parts of a peer."""
