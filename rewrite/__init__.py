"""Takes a graph and makes another: passes write devices into it, and SavedModels are emitted."""
