"""Tests of tfplace.grouping.layers."""

import numpy as np

from tests.builders import Machine, Op, build_problem, chain
from tfplace.grouping.layers import layer_groups

MACHINE = Machine(num_devices=2, latency=0.0, bandwidth=1.0)


def _parts(problem, **options):
    """The names of each group, groups by their first op."""
    of_op = layer_groups(problem, **options).group_of_op
    names = np.array(problem.graph.op_names)
    _, first = np.unique(of_op, return_index=True)
    return [" ".join(names[of_op == of_op[op]]) for op in sorted(first)]


def _step(layer, step, below, last):
    """A product with the layer's weights, and an elementwise op behind it."""
    inputs = (f"w{layer}:0", below, *([last] if last else []))
    return [
        Op(f"p{layer}{step}", 1.0, inputs, (20,)),
        Op(f"t{layer}{step}", 0.1, (f"p{layer}{step}:0",), (5,)),
    ]


def test_what_computes_with_a_variable_lies_with_it():
    weights = [Op(f"w{i}", 0.0, (), (1000,), persistent=1000) for i in range(2)]
    ops = [Op("x", 0.0, (), (5,)), *weights]
    for step in range(2):
        ops += _step(0, step, "x:0", f"t0{step - 1}:0" if step else "")
        ops += _step(1, step, f"t0{step}:0", f"t1{step - 1}:0" if step else "")
    ops.append(Op("g", 1.0, ("t11:0",), (1000,)))
    ops.append(Op("update", 1.0, ("g:0", "w1:0"), ()))
    found = _parts(build_problem(ops, MACHINE))
    assert found == ["x w0 p00 t00 p01 t01", "w1 p10 t10 p11 t11 g update"]


def test_a_variable_of_little_work_gives_way_to_a_neighbour():
    ops = [
        Op("kernel", 0.0, (), (100,), persistent=100),
        Op("bias", 0.0, (), (2,), persistent=2),
        Op("product", 10.0, ("kernel:0",), (50,)),
        Op("sum", 0.01, ("product:0", "bias:0"), (50,)),
    ]
    assert _parts(build_problem(ops, MACHINE)) == ["kernel bias product sum"]
    both = _parts(build_problem(ops, MACHINE), min_share=0.0)
    assert both == ["kernel product sum", "bias"]


def test_kinds_of_ops_are_kept_apart():
    ops = [
        Op("w", 0.0, (), (100,), persistent=100),
        Op("cpu", (1.0, np.inf), ("w:0",), (100,)),
        Op("gpu", 1.0, ("cpu:0",)),
        Op("free", 1.0, ("w:0",)),
    ]
    assert _parts(build_problem(ops, MACHINE)) == ["w free", "cpu", "gpu"]


def test_without_variables_all_are_one():
    assert layer_groups(chain(4, machine=MACHINE)).num_groups == 1


def test_colocated_ops_stay_together():
    ops = [
        Op("v", 0.0, (), (9,), persistent=9),
        Op("w", 0.0, (), (9,), persistent=9, colocation=0),
        Op("a", 1.0, ("v:0",), (20,)),
        Op("b", 1.0, ("a:0",), (), colocation=0),
    ]
    assert _parts(build_problem(ops, MACHINE), min_share=0.0) == ["v", "w a b"]
