"""From a model, a cluster and options to a priced problem: op costs, constraints, expert marks."""
