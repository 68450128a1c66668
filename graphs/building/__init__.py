"""Function calls opened, shapes inferred, the op graph built."""
