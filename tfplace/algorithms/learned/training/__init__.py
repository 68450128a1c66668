"""Training one policy over a family of graphs, so that it places the next one at once."""
