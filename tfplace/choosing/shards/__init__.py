"""Into how many shards a step's batch is split."""
