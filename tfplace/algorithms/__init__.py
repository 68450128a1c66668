"""All algorithms that `--algorithm` names, each a `tfplace.search.trial.Policy`; see `table`."""
