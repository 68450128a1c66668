"""What a placement really takes: real runs in child processes, timed and traced.

`run_measurement` times variants of a graph side by side, `measuring_evaluator` one placement after
the other; `trace` says what ran where, `allocator` what it held. All of them ask a
`measuring_process`, in the messages of `training_run`. That starts a `measuring_child`, where
`run_graph` and `step_runner` make a graph run, and, for a cluster `workers:N`, its `workers`.
`timing` and `machine_load` tell what the step times are worth. `calibration` measures the devices.
"""
