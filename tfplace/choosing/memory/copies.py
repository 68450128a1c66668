"""A problem in which some ops run a second time: what a plan is to the simulator."""

import dataclasses

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from rewrite.memory.recompute import AGAIN
from tfplace.choosing.memory.rematerialize import ORIGINAL, CopyPlan
from tfplace.choosing.scheduling import edges


def with_copies(problem: Problem, plan: CopyPlan) -> edges.EdgedProblem:
    """Adds the copies of a plan, each behind what it waits for.

    Returns:
      The problem; its `op_at` numbers the copies from N on.
    """
    graph, num_ops, num_tensors = problem.graph, problem.num_ops, problem.graph.num_tensors
    outputs: dict[int, list[int]] = {}
    wanted = {each.op for each in plan.copies}
    producer: list[int] = graph.tensor_producer.tolist()
    for tensor, op in enumerate(producer):
        if op in wanted and graph.tensor_output[tensor] >= 0:
            outputs.setdefault(op, []).append(tensor)
    of_copy: dict[tuple[int, int], int] = {}  # (copy, tensor of its op): the copy's own
    source: list[int] = []
    made_by: list[int] = []
    for number, copy in enumerate(plan.copies):
        for tensor in outputs.get(copy.op, ()):
            of_copy[number, tensor] = num_tensors + len(source)
            source.append(tensor)
            made_by.append(num_ops + number)
    tensor_at = np.array([*range(num_tensors), *source], dtype=np.int64)
    tensors = {name: getattr(graph, name)[tensor_at] for name in edges.OF_TENSOR}
    tensors["tensor_producer"][num_tensors:] = made_by
    reads_of = {num_ops + number: copy.reads for number, copy in enumerate(plan.copies)}
    reads_of |= plan.reads

    def read_by(op: int, tensor: int) -> int:
        copy = reads_of.get(op, {}).get(tensor, ORIGINAL)
        return tensor if copy == ORIGINAL else of_copy[copy, tensor]

    shares: list[int] = tensors["tensor_shares"].tolist()
    for (number, tensor), own in of_copy.items():
        if shares[own] == tensor or shares[own] < 0:
            shares[own] = -1
        elif producer[shares[own]] == plan.copies[number].op:
            shares[own] = of_copy[number, shares[own]]
        else:
            shares[own] = read_by(num_ops + number, shares[own])
    for tensor in range(num_tensors):
        op = producer[tensor]
        if op in plan.reads and shares[tensor] in plan.reads[op]:
            shares[tensor] = read_by(op, shares[tensor])
    tensors["tensor_shares"] = np.array(shares, dtype=np.int32)
    uses, inputs = [], dict[int, list[int]]()
    for tensor, op in zip(graph.use_tensor.tolist(), graph.use_op.tolist(), strict=True):
        uses.append((read_by(op, tensor), op))
        inputs.setdefault(op, []).append(tensor)
    for own, copy in enumerate(plan.copies, num_ops):
        uses += [(read_by(own, tensor), own) for tensor in inputs.get(copy.op, ())]
    pairs = np.array(sorted(set(uses)), dtype=np.int32).reshape(-1, 2)
    op_at = np.array([*range(num_ops), *(each.op for each in plan.copies)], dtype=np.int32)
    persistent, groups = graph.op_persistent_bytes[op_at], graph.colocation_group[op_at]
    persistent[num_ops:], groups[num_ops:] = 0, -1
    names = [f"{graph.op_names[c.op]}/{AGAIN}/{n}" for n, c in enumerate(plan.copies)]
    copied = dataclasses.replace(
        edges.graph_with(graph, tensors),
        op_names=[*graph.op_names, *names],
        op_types=[graph.op_types[op] for op in op_at.tolist()],
        use_tensor=pairs[:, 0],
        use_op=pairs[:, 1],
        op_persistent_bytes=persistent,
        op_temp_bytes=graph.op_temp_bytes[op_at],
        colocation_group=groups,
    )
    waits = [(copy.after, own) for own, copy in enumerate(plan.copies, num_ops) if copy.after >= 0]
    order = edges.order_edges(*map(list, zip(*waits, strict=True))) if waits else edges.NO_EDGES
    whole = dataclasses.replace(edges.of_ops(problem, op_at), graph=copied)
    return edges.with_order_edges(whole, order)


def with_their_copies(device_of_op: IntArray, plan: CopyPlan) -> IntArray:
    """i4[N + C]: a placement with each copy beside its op."""
    return np.concatenate([device_of_op, device_of_op[[each.op for each in plan.copies]]])
