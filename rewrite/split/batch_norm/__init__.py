"""Batch normalisation over all shards: taken apart into sums that can be added up."""
