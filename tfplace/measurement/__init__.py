"""What a placement really takes: runs of the graph in child processes, timed and traced."""
