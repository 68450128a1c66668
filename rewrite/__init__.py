"""A graph in, a graph out: device annotations written by passes, SavedModels emitted."""
