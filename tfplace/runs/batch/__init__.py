"""Many commands, one line each: isolated from each other, resumable, one summary."""
