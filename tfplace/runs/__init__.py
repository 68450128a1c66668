"""Many runs: batches of commands, grids of a bench, and where their processes run."""
