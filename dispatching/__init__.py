"""Pure planning: given the subscribers of a topic and a fan-out, who sends to whom.

Knows ids and numbers, no topics, links or clocks. `algorithms` names what there is to choose from.
"""
