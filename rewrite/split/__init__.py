"""Splits a training step along its batch, one part (a shard) for each device, and proves it equal.

The rooms in the order of the work, which is that of their floors: `reading` looks at the step as it
came, `decide` says of each op whether it is split (`rules`: what one op allows), `any_batch` whether
that holds for every batch size, `batch_norm` takes statistics of the whole batch apart, `build` makes
the new graph, `write` puts it into the model, and `prove` checks it. Faces: `split_model.StepToSplit`
(a step that may be split), `split_model.SplitModel`, `prove_split.prove_split`, `summary`. A tensor's
`states` are DTensor's placements: Whole is Replicate, Sharded is Shard, Partial is Partial.
"""
