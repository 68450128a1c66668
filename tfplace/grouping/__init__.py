"""From ops to groups: the unit that a policy decides about."""
