"""What is compiled before it is needed, so that no search waits for it."""
