"""Pure planning: which subscriber sends a message to which others, given the subscribers of a topic and a fan-out.

Knows ids and numbers, no topics, links or clocks. `algorithms` lists the algorithms by name.
"""
