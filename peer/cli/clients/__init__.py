"""Owns `ringmq pub` and `ringmq sub`: options, input and output; must not know the ring, nor packets of MQTT."""
