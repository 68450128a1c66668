"""What becomes of each op of a step of one size: split, or kept whole."""
