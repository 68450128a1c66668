"""The split step's way into the model: its graph, its signatures, the unsplit step beside it."""
