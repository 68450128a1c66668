"""The five published learned algorithms, each a `tfplace.trial.Policy`."""
