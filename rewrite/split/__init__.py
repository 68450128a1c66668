"""Splits a training step along its batch, one part (a shard) for each device, and proves it equal.

The rooms in the order of the work: `reading` looks at the step as it came; `decide` says of each op
whether it is split, by `rules` of what one op allows; `any_batch` says whether that holds for every
batch size; `batch_norm` takes statistics of the whole batch apart; `building` makes the new graph;
`write` puts it into the model; `prove` checks it. The faces are `split_model`, `prove_split` and
`summary`. A tensor's `states` are DTensor's: Whole is its Replicate, Sharded its Shard.
"""
