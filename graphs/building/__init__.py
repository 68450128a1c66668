"""Opens function calls, infers shapes, and builds the op graph."""
