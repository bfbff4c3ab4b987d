"""Takes in what `logger` emits, and the Spark jobs that reduce it."""
