"""What becomes of an op, by its type: one rule for each, all of them in `table`."""
