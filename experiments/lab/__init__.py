"""The experiments of `ringmq experiment`: what each asks, runs and finds."""
