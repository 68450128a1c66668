"""What the host gives: child processes, time limits, files written whole, near names."""
