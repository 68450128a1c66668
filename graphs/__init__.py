"""The placement problem, as values: models, op graphs, costs, clusters, placements."""
