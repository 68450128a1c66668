"""What is asked of the host: child processes, time limits, files that are written whole."""
