"""Splits a training step along its batch, so that its parts can be placed on different devices.

The contract, section 9 (tfplace/docs/contract.md), says what a split step is. `states` are what a
tensor of it can be, `rules` say for each op type what becomes of an op whose inputs are in such
states, `decide` asks them for every op of a step, `build_step` makes the new graph.
"""
