"""What puts load on MQTT servers and compares them, each alone on one core."""
