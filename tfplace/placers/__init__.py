"""Methods that place without learning."""
