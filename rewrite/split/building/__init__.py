"""The new graph: each split op once for each shard, and what joins, sums and cuts tensors."""
