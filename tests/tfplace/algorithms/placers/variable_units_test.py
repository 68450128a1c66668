"""A weight, its gradient's sum and its optimizer's moments are one unit in data parallelism."""

import numpy as np

from tests.builders import Machine, Op, build_problem
from tests.split_steps import by_name
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.algorithms.placers.variable_units import variable_bytes, variable_units
from tfplace.grouping.copies import shard_of_op

BYTES = 256


def adam_step():
    """Two layers with a weight and a moment each, updated by ops of their own; a rate for all.

    Shards clip what they have by the norm of both gradients.
    """
    ops = [Op("x", 0.0, (), (4,)), Op("x/cut", 0.0, ("x:0",), (1, 1))]
    ops.append(Op("rate", 0.0, (), (4,), alloc=(0,), persistent=4, colocation=9))
    for layer in range(2):
        for index, name in enumerate((f"w{layer}", f"moment{layer}")):
            group = 2 * layer + index
            ops.append(Op(name, 0.0, (), (BYTES,), alloc=(0,), persistent=BYTES, colocation=group))
        read = [f"x/cut:{m}" if layer == 0 else f"l0/shard_{m}:0" for m in range(2)]
        ops += [Op(f"l{layer}/shard_{m}", 1.0, (read[m], f"w{layer}:0"), (2,)) for m in range(2)]
    for layer in range(2):
        names = [f"grad{layer}/shard_{m}" for m in range(2)]
        ops += [Op(n, 1.0, (f"l1/shard_{m}:0",), (BYTES,)) for m, n in enumerate(names)]
        terms = tuple(f"{name}:0" for name in names)
        ops.append(Op(f"summed{layer}", 0.01, terms, (BYTES,)))
        ops.append(Op(f"beta{layer}", 0.0, (), (4,), persistent=4, type="Const"))
        read = (f"summed{layer}:0", f"beta{layer}:0", f"moment{layer}:0")
        ops.append(Op(f"change{layer}", 0.01, read, (BYTES,)))
        ops.append(Op(f"keep{layer}", 0.01, (f"change{layer}:0",), (), colocation=2 * layer + 1))
        ops.append(Op(f"scaled{layer}", 0.01, (f"change{layer}:0", "rate:0"), (BYTES,)))
        ops.append(Op(f"update{layer}", 0.01, (f"scaled{layer}:0",), (), colocation=2 * layer))
    norms = tuple(f"norm{layer}:0" for layer in range(2))
    ops += [Op(f"norm{layer}", 0.0, (f"summed{layer}:0",), (4,)) for layer in range(2)]
    ops += [Op(f"clipped/shard_{m}", 0.0, (f"l1/shard_{m}:0", *norms), ()) for m in range(2)]
    return build_problem(ops, Machine(num_devices=3, latency=0.001, bandwidth=1000.0))


def test_a_weight_and_its_moment_are_one_unit_but_two_weights_are_two():
    problem = adam_step()
    units = variable_units(problem, shard_of_op(problem))
    unit = by_name(problem, units)
    for layer in range(2):
        own = {unit[f"{name}{layer}"] for name in ("w", "moment", "summed", "keep", "update")}
        assert own == {unit[f"w{layer}"]}
        assert variable_bytes(problem, units)[unit[f"w{layer}"]] == 2 * BYTES
    assert len({unit["w0"], unit["w1"], unit["rate"], unit["x"], unit["l0/shard_0"]}) == 5


def test_data_parallelism_updates_a_weight_where_it_lies():
    problem = adam_step()
    where = by_name(problem, data_parallel(problem))
    for layer in range(2):
        named = ("w", "moment", "summed", "change", "keep", "scaled", "update")
        assert len({where[f"{name}{layer}"] for name in named}) == 1
    assert where["w0"] != where["w1"]


def test_constants_are_no_variables():
    problem = adam_step()
    graph = problem.graph
    held = variable_bytes(problem, np.arange(problem.num_ops))
    assert held[graph.op_names.index("beta0")] == 0
    assert held[graph.op_names.index("w0")] == BYTES
    where = dict(zip(graph.op_names, data_parallel(problem).tolist(), strict=True))
    assert [where[f"beta{layer}"] for layer in range(2)] == [where["w0"], where["w1"]]
