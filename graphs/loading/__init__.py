"""A model file in, the run graph and what a run of it is out."""
