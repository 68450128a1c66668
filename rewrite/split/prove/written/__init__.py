"""What was written is what was proven, the rest is unchanged, and it loads."""
