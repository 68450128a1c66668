"""Which placement is written: baselines, predictions and real runs against each other."""
