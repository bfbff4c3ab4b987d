"""Pure planning: given the subscribers of a topic and a fan-out, who sends to whom. Nothing in it yet."""
