"""What all shards wait for may lie on the CPUs of the hosts."""

import dataclasses

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.placers.data_parallel import (
    data_parallel,
    data_parallel_starts,
    with_barriers_on_cpus,
)

TWO_HOSTS = [
    f"/job:worker/task:{task}/device:{kind}:0" for task in (0, 1) for kind in ("CPU", "GPU")
]


def normalised(statistic_bytes=4, **attributes):
    """A product in two shards, its mean over both, a whole factor of that, and what uses it."""
    ops = [Op(f"product/shard_{m}", 1.0, (), (100,)) for m in (0, 1)]
    terms = [
        Op(f"mean/shard_{m}", 0.1, (f"product/shard_{m}:0",), (statistic_bytes,)) for m in (0, 1)
    ]
    total = Op(
        "mean/summed", 0.1, [f"{op.name}:0" for op in terms], (statistic_bytes,), **attributes
    )
    factor = Op("factor", 0.1, ("mean/summed:0",), (statistic_bytes,))
    uses = [Op(f"use/shard_{m}", 1.0, (f"product/shard_{m}:0", "factor:0"), (8,)) for m in (0, 1)]
    loss = Op("loss/summed", 0.1, [f"{op.name}:0" for op in uses], (8,))
    return [*ops, *terms, total, factor, *uses, loss]


def moved(ops, types=("CPU", "GPU", "GPU"), names=None):
    """{op: its device} of what does not lie where data parallelism has it."""
    problem = build_problem(ops, Machine(len(types), types=types))
    if names:
        problem = dataclasses.replace(problem, device_names=names)
    before = data_parallel(problem)
    after = with_barriers_on_cpus(problem, before)
    return {
        problem.graph.op_names[op]: int(after[op])
        for op in np.flatnonzero(before != after).tolist()
    }


def test_what_several_shards_lead_to_and_a_shard_waits_for_goes_to_the_cpu():
    assert moved(normalised()) == {"mean/summed": 0, "factor": 0}  # not the loss: no shard waits


def test_it_stays_on_its_host():
    on_second = [dataclasses.replace(op, name=op.name.replace("mean/summed", "mean/summed/shard_1"),
                 inputs=[i.replace("mean/summed", "mean/summed/shard_1") for i in op.inputs])
                 for op in normalised()]  # fmt: skip
    kinds = ("CPU", "GPU", "CPU", "GPU")
    assert moved(on_second, kinds, TWO_HOSTS)["mean/summed/shard_1"] == 2


@pytest.mark.parametrize(
    "ops", [normalised(1 << 16), normalised(colocation=0), normalised(persistent=8)]
)
def test_what_is_large_or_tied_to_others_stays(ops):
    assert "mean/summed" not in moved(ops)


def test_a_cpu_that_computes_shards_is_left_alone():
    assert moved(normalised(), ("CPU", "CPU")) == {}


def test_both_forms_are_starts():
    problem = build_problem(normalised(), Machine(3))
    starts = data_parallel_starts(problem)
    assert (starts[0] == data_parallel(problem)).all()
    assert any((start == with_barriers_on_cpus(problem, starts[0])).all() for start in starts[1:])
